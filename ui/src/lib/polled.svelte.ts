// An answer of the REST API that is asked for again while the page is in sight, with the sentence of the last refusal.

import { onDestroy } from "svelte";
import { ApiError, call } from "./api";

const REST_MS = 1500; // between two questions, however much changes: an answer is work for the server

/** Asked now, every so often, and soon after `nudge`. Who may not ask is not asked for again. */
export class Polled<T> {
  value = $state.raw<T | undefined>();
  problem = $state("");
  isRefused = $state(false);
  #askedAt = 0;
  #isAsking = false;
  #isOutdated = false;
  #isGone = false;
  #soon: ReturnType<typeof setTimeout> | undefined;
  readonly #path: string;

  constructor(path: string, everyMs: number) {
    this.#path = path;
    const timer = setInterval(() => !this.#isAsking && void this.ask(), everyMs);
    onDestroy(() => {
      this.#isGone = true;
      clearInterval(timer);
      clearTimeout(this.#soon);
    });
    void this.ask();
  }

  /** Something changed. */
  nudge(): void {
    this.#soon ??= setTimeout(() => {
      this.#soon = undefined;
      void this.ask();
    }, Math.max(0, this.#askedAt + REST_MS - performance.now()));
  }

  /** What is being answered now may have been looked up before the change that somebody asks about: it is asked for once more. */
  async ask(): Promise<void> {
    this.#isOutdated = this.#isAsking;
    if (this.#isAsking || this.isRefused || document.hidden) return;
    this.#isAsking = true;
    this.#askedAt = performance.now();
    try {
      this.value = await call<T>("GET", this.#path);
      this.problem = "";
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
      this.isRefused = error instanceof ApiError && error.status === 403;
    } finally {
      this.#isAsking = false;
      if (this.#isOutdated && !this.#isGone) this.nudge();
      this.#isOutdated = false;
    }
  }
}
