// Answers come in any order. Of what one place of a page asks for again and again, a later question's answer is not written over by
// an earlier one's; an answer about something else than what is asked for now counts no more, and none does once that place is gone.

import { onDestroy } from "svelte";

/** For one component: make it while that is made. */
export class Newest {
  #asked = 0;
  #shown = 0;
  #about = "";
  #isGone = false;

  constructor() {
    onDestroy(() => (this.#isGone = true));
  }

  /** A question begins; ask the result whether its answer, or its failure, is to be shown. */
  begin(about = ""): () => boolean {
    const own = (this.#asked += 1);
    this.#about = about;
    return () => {
      if (this.#isGone || own < this.#shown || about !== this.#about) return false;
      this.#shown = own;
      return true;
    };
  }

  /** The component is not there any more. */
  get isGone(): boolean {
    return this.#isGone;
  }
}
