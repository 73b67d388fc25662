// The server's engine, on which the page's advice depends.

export const engine = $state({ isReal: false });

/** A first command to try; on a real cluster a job needs an image, written IMAGE. */
export function firstCommand(flags: string): string {
  const image = engine.isReal ? "--image IMAGE " : "";
  return `rowlock run ${flags} ${image}-- python -c 'print(1)'`;
}
