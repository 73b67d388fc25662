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

/** Call `then` when light turns to dark, or the other way round; how to stop that. */
export function watchScheme(then: () => void): () => void {
  const media = matchMedia("(prefers-color-scheme: dark)");
  const observer = new MutationObserver(then);
  media.addEventListener("change", then);
  observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  return () => (media.removeEventListener("change", then), observer.disconnect());
}
