// The route, in the fragment of the address: the server need not know the paths of the page.

export const route = $state({ parts: parse() });

function parse(): string[] {
  return location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
}

/** The browser's present address, also for components that are being removed: `route` still has its former value for those. */
export function place(): string {
  return parse().join("/");
}

/** Update `route` from the address; unchanged parts cause no update of their readers. */
function follow(): void {
  const parts = parse();
  if (parts.length !== route.parts.length || parts.some((part, index) => part !== route.parts[index])) route.parts = parts;
}

addEventListener("hashchange", follow);

export function hash(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function go(...parts: string[]): void {
  location.hash = hash(...parts);
  // `hashchange` comes later, and the next key may come before it: two quick arrow keys moved by one tab only.
  follow();
}
