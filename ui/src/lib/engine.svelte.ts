// Which engine the server has: what a page advises depends on it.

export const engine = $state({ isReal: false });

/** A first command; on a real cluster a job runs an image, and IMAGE stands for its name. */
export function firstCommand(flags: string): string {
  const image = engine.isReal ? "--image IMAGE " : "";
  return `rowlock run ${flags} ${image}-- python -c 'print(1)'`;
}
