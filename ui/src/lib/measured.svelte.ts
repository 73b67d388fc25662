// Figures over a range of time, asked for now and every so often while the page is in sight; and the library that draws them.

import { untrack } from "svelte";
import type uPlot from "uplot";
import { sentenceOf } from "./api";
import { Newest } from "./newest";

const REFRESH_MS = 5000;

/** The charts' library, once it is loaded. */
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

/** `ask` answers for a range in minutes, "" for all of it. For one component: it asks until that goes. */
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
      untrack(() => void load(chosen)); // what it reads on the way, the clock for one, is no reason to ask again
      const timer = setInterval(() => !document.hidden && void load(chosen), REFRESH_MS);
      return () => clearInterval(timer);
    });
  }
}
