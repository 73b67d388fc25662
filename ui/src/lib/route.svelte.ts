// Where the page is, in the fragment of its address: no server needs to know the paths of the page.

export const route = $state({ parts: parse() });

function parse(): string[] {
  return location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
}

addEventListener("hashchange", () => {
  route.parts = parse();
});

export function hash(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function go(...parts: string[]): void {
  location.hash = hash(...parts);
}
