// The GPUs that projects hold now. The scheduler updates its queues every 15 seconds; cards and the stream of workloads
// are newer.

import type { NodeCards } from "./cluster";
import { live, rows } from "./live.svelte";
import { Polled } from "./polled.svelte";
import type { OrganisationUnit } from "./quotas";

const REFRESH_MS = 4000;

/** For one component. */
export class HeldGpus {
  #cards = new Polled<{ nodes: NodeCards[] }>("scheduler/cards", REFRESH_MS);
  /** By project, from all pods; for users who may list pods. */
  #ofPods = $derived.by(() => {
    if (!this.#cards.value) return undefined;
    const found = new Map<string, number>();
    for (const node of this.#cards.value.nodes) {
      for (const holder of [...node.cards.flatMap((card) => card.holders), ...node.elsewhere]) found.set(holder.projectName, (found.get(holder.projectName) ?? 0) + holder.share);
    }
    return found;
  });
  /** By project, from the workloads that this user may see. */
  #ofRows = $derived.by(() => {
    void live.version;
    const found = new Map<string, number>();
    for (const row of rows.values()) found.set(row.projectName, (found.get(row.projectName) ?? 0) + row.gpuAllocation);
    return found;
  });

  constructor() {
    $effect(() => {
      void live.version; // when workloads change, cards change
      this.#cards.nudge();
    });
  }

  /** Held GPUs of a project; the scheduler's last count where the user sees neither pods nor workloads. */
  of({ name, status }: Pick<OrganisationUnit, "name" | "status">): number {
    const held = this.#ofPods ? (this.#ofPods.get(name) ?? 0) : (this.#ofRows.get(name) ?? status.quotaStatus.allocated.gpu);
    return Math.round(held * 100) / 100;
  }
}
