// Answers may arrive in any order. An answer is dropped if a later request has been answered already, if the request
// is about something else by now, or if the component is gone.

import { onDestroy } from "svelte";

/** For one component; call it while the component is created. */
export class Newest {
  #asked = 0;
  #shown = 0;
  #about = "";
  #isGone = false;

  constructor() {
    onDestroy(() => (this.#isGone = true));
  }

  /** Start a request. The result tells whether its answer or error is still to be shown. */
  begin(about = ""): () => boolean {
    const own = (this.#asked += 1);
    this.#about = about;
    return () => {
      if (this.#isGone || own < this.#shown || about !== this.#about) return false;
      this.#shown = own;
      return true;
    };
  }

  /** Whether the component was removed. */
  get isGone(): boolean {
    return this.#isGone;
  }
}
