// Pods as the REST API lists them, requested again when they change.

import { call, sentenceOf } from "./api";
import { Newest } from "./newest";

/** For one component. `path` is the path of the list; `stamp` changes with the pods. */
export class PodList<T> {
  pods = $state.raw<T[] | undefined>();
  problem = $state("");

  constructor(path: () => string, stamp: () => string) {
    const newest = new Newest();
    const wanted = $derived(path()); // another change of the row must not trigger a request
    const state = $derived(stamp());
    $effect(() => {
      void state;
      const asked = wanted;
      const isNewest = newest.begin(asked);
      call<{ pods: T[] }>("GET", asked).then(
        (body) => isNewest() && ((this.pods = body.pods), (this.problem = "")),
        (error: unknown) => isNewest() && (this.problem = sentenceOf(error)),
      );
    });
  }
}
