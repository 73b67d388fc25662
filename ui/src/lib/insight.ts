// Keeps the current link or tab visible in a list that is wider than the page.

const CURRENT = "[aria-current], [aria-selected='true']";

/** A Svelte action, for `use:`. */
export function keepCurrentInSight(list: HTMLElement): { destroy: () => void } {
  const show = (): void => {
    const current = list.querySelector<HTMLElement>(CURRENT);
    if (current) list.scrollLeft = current.offsetLeft - list.offsetLeft - (list.clientWidth - current.offsetWidth) / 2;
  };
  const observer = new MutationObserver(show);
  const resized = new ResizeObserver(show);
  observer.observe(list, { subtree: true, attributeFilter: ["aria-current", "aria-selected"] });
  resized.observe(list);
  return { destroy: () => (observer.disconnect(), resized.disconnect()) };
}
