// What this browser remembers for its user. A value that cannot be read is as good as none.

export function remembered<T>(name: string, fallback: T): T {
  try {
    const text = localStorage.getItem(`rowlock.${name}`);
    return text === null ? fallback : (JSON.parse(text) as T);
  } catch {
    return fallback;
  }
}

export function remember(name: string, value: unknown): void {
  localStorage.setItem(`rowlock.${name}`, JSON.stringify(value));
}
