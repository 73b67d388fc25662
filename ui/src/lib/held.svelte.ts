// The GPUs that projects hold now. The scheduler counts them into its queues every 15 seconds; cards, and the stream of workloads, know
// them at once.

import type { NodeCards } from "./cluster";
import { live, rows } from "./live.svelte";
import { Polled } from "./polled.svelte";
import type { OrganisationUnit } from "./quotas";

const REFRESH_MS = 4000;

/** For one component. */
export class HeldGpus {
  #cards = new Polled<{ nodes: NodeCards[] }>("scheduler/cards", REFRESH_MS);
  /** By project: of all pods, for those who may see them. */
  #ofPods = $derived.by(() => {
    if (!this.#cards.value) return undefined;
    const found = new Map<string, number>();
    for (const node of this.#cards.value.nodes) {
      for (const holder of [...node.cards.flatMap((card) => card.holders), ...node.elsewhere]) found.set(holder.projectName, (found.get(holder.projectName) ?? 0) + holder.share);
    }
    return found;
  });
  /** By project: of the workloads that this user sees. */
  #ofRows = $derived.by(() => {
    void live.version;
    const found = new Map<string, number>();
    for (const row of rows.values()) found.set(row.projectName, (found.get(row.projectName) ?? 0) + row.gpuAllocation);
    return found;
  });

  constructor() {
    $effect(() => {
      void live.version; // a change of workloads is a change of cards
      this.#cards.nudge();
    });
  }

  /** Of a project; what the scheduler counted last, for whoever sees neither its pods nor its workloads. */
  of({ name, status }: Pick<OrganisationUnit, "name" | "status">): number {
    const held = this.#ofPods ? (this.#ofPods.get(name) ?? 0) : (this.#ofRows.get(name) ?? status.quotaStatus.allocated.gpu);
    return Math.round(held * 100) / 100;
  }
}
