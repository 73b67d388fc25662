// The REST API, with the key of the session. Addresses are relative to the page, so that any base path works.

const KEY = "rowlock.key";
const SIGNED_OUT = "rowlock-signed-out";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly issues: { field: string; details: string }[] = [],
  ) {
    super(message);
  }
}

export function address(path: string): string {
  return new URL(`api/v1/${path}`, document.baseURI).href;
}

export function sessionKey(): string {
  return localStorage.getItem(KEY) ?? "";
}

/** Forget the session of this key, unless a newer one has begun. */
export function forgetSession(key: string): void {
  if (sessionKey() === key) localStorage.removeItem(KEY);
}

/** Exchange the code of `rowlock ui`'s address for a session. Throws ApiError. */
export async function exchangeCode(code: string): Promise<void> {
  const { key } = await call<{ key: string }>("POST", "ui/session", { code });
  localStorage.setItem(KEY, key);
}

/** A session for a name and a password. Throws ApiError with the server's own sentence. */
export async function logIn(username: string, password: string): Promise<void> {
  const { key } = await call<{ key: string }>("POST", "ui/login", { username, password });
  localStorage.setItem(KEY, key);
}

/** A session for a token of the cluster. Throws ApiError with the server's own sentence. */
export async function logInWithToken(token: string): Promise<void> {
  const { key } = await call<{ key: string }>("POST", "ui/login", { token });
  localStorage.setItem(KEY, key);
}

/** Call `ended` with the key of a session that is over, here or in another tab, and `begun` when another tab has begun one. */
export function watchSession(ended: (key: string) => void, begun: () => void): void {
  addEventListener(SIGNED_OUT, (event) => ended((event as CustomEvent<string>).detail));
  addEventListener("storage", (event) => {
    if (event.key !== KEY) return;
    if (event.newValue) begun();
    else ended(event.oldValue ?? "");
  });
}

/** The answer to one request. Throws ApiError with the server's own sentence. */
export async function call<T>(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
  const answer = await request(path, {
    method,
    ...(body === undefined ? { headers } : { body: JSON.stringify(body), headers: { ...headers, "Content-Type": "application/json" } }),
  });
  return (await answer.json()) as T;
}

const watchers = new Set<(answer: Response) => void>();

/** Call `then` with each response; returns a function that stops this. */
export function watchAnswers(then: (answer: Response) => void): () => void {
  watchers.add(then);
  return () => watchers.delete(then);
}

/** A response whose status is a success. Throws ApiError. */
export async function request(path: string, options: RequestInit = {}): Promise<Response> {
  let answer: Response;
  const key = sessionKey();
  try {
    answer = await fetch(address(path), {
      ...options,
      cache: "no-store",
      headers: { ...(options.headers as Record<string, string>), "X-Rowlock-Key": key },
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "The server does not answer. Check it with `rowlock status`; the page comes back by itself.");
  }
  if (answer.status === 401 && !path.startsWith("ui/")) dispatchEvent(new CustomEvent(SIGNED_OUT, { detail: key }));
  if (answer.status !== 401) for (const then of watchers) then(answer);
  if (!answer.ok) throw await errorOf(answer);
  return answer;
}

async function errorOf(answer: Response): Promise<ApiError> {
  const text = await answer.text();
  try {
    const body = JSON.parse(text) as { message?: string; complianceIssues?: { field: string; details: string }[] };
    return new ApiError(answer.status, body.message || `HTTP ${answer.status}`, body.complianceIssues ?? []);
  } catch {
    return new ApiError(answer.status, text.trim() || `HTTP ${answer.status}`);
  }
}

/** The error in the server's own words, each field error if it named some. */
export function sentenceOf(error: unknown): string {
  if (error instanceof ApiError && error.issues.length) return error.issues.map((issue) => issue.details).join(" ");
  return error instanceof Error ? error.message : String(error);
}
