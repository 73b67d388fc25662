// Where the page is, in the fragment of its address: no server needs to know the paths of the page.

export const route = $state({ parts: parse() });

function parse(): string[] {
  return location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
}

/** Where the browser is, also for what is being taken from the page: to that, `route` shows what it was. */
export function place(): string {
  return parse().join("/");
}

/** Take over what the address says; what stays the same wakes nothing that reads it. */
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
  // The browser tells of the change later, and the next key may come before it: two arrow keys in a row went one tab.
  follow();
}
