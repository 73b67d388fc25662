// Figures over a time range, requested regularly while the page is visible; and the chart library.

import { untrack } from "svelte";
import type uPlot from "uplot";
import { sentenceOf } from "./api";
import { Newest } from "./newest";

const REFRESH_MS = 5000;

/** The chart library, once it is loaded. */
export class ChartLibrary {
  plot = $state.raw<typeof uPlot | undefined>();
  problem = $state("");

  constructor() {
    import("./chart").then(
      (module) => (this.plot = module.default),
      () => (this.problem = "The charts could not be loaded: reload the page."),
    );
  }
}

/** `ask` returns the figures of a range in minutes, "" for everything. Requests end with the component. */
export class Measured<T> {
  range = $state("");
  value = $state.raw<T | undefined>();
  problem = $state("");
  isKnown = $state(false);

  constructor(first: string, ask: (minutes: string) => Promise<T>) {
    this.range = first;
    const newest = new Newest();
    const load = async (minutes: string): Promise<void> => {
      const isNewest = newest.begin(minutes);
      try {
        const value = await ask(minutes);
        if (!isNewest()) return;
        this.value = value;
        this.problem = "";
        this.isKnown = true;
      } catch (error) {
        if (isNewest()) this.problem = sentenceOf(error);
      }
    };
    $effect(() => {
      const chosen = this.range;
      untrack(() => void load(chosen)); // values that it reads, such as the clock, must not trigger another request
      const timer = setInterval(() => !document.hidden && void load(chosen), REFRESH_MS);
      return () => clearInterval(timer);
    });
  }
}
