// An answer of the REST API, requested again while the page is visible, and the last error.

import { onDestroy } from "svelte";
import { ApiError, call } from "./api";

const REST_MS = 1500; // between two requests, however much changes, to spare the server

/** Request now, regularly, and soon after `nudge`. After a 403 it stops. */
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

  /** The request under way may have been answered from a state before the change: request once more. */
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
