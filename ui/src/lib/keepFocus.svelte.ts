// A row that moves in a live table is removed and inserted again, and loses the focus: this restores it.
import { tick } from "svelte";

/** For a component with a table; `order` reads what the rows are drawn from. */
export function keepFocus(order: () => unknown): void {
  $effect.pre(() => {
    order();
    const had = document.activeElement;
    if (!(had instanceof HTMLElement) || !had.closest("tbody")) return;
    void tick().then(() => {
      if (had.isConnected && document.activeElement === document.body) had.focus({ preventScroll: true });
    });
  });
}
