// A row that moves in a live table is taken out and put in again, which takes the focus from what is in it: that gets it back.
import { tick } from "svelte";

/** Of a component with a table; `order` reads what its rows are drawn from. */
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
