// Preferences that this browser remembers. An unreadable value counts as none.

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

/** Call `then` when the colour scheme changes; returns a function that stops this. */
export function watchScheme(then: () => void): () => void {
  const media = matchMedia("(prefers-color-scheme: dark)");
  const observer = new MutationObserver(then);
  media.addEventListener("change", then);
  observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  return () => (media.removeEventListener("change", then), observer.disconnect());
}
