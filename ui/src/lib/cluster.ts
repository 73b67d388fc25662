// The cluster's cards and who is on them, and the order in which workloads wait.

import type { Card, CardHolder as Holder, NodeCards } from "./answers";
import type { Row } from "./types";

export type { Card, NodeCards, WaitingGang as Waiting, WaitingOrder } from "./answers";

/** Whether pods of a node that is full or away may still come to it. */
export function isOpen(node: NodeCards): boolean {
  return node.status === "Ready" && !node.unschedulable;
}

/** GPUs of all nodes: what there is, what somebody holds, what is free on nodes that take pods. */
export function countGpus(nodes: NodeCards[]): { total: number; allocated: number; idle: number; closed: number } {
  let total = 0;
  let allocated = 0;
  let idle = 0;
  for (const node of nodes) {
    total += node.cards.length;
    allocated += node.allocated;
    if (isOpen(node)) idle += Math.max(0, node.cards.length - node.allocated);
  }
  return { total, allocated, idle, closed: Math.max(0, total - allocated - idle) };
}

export interface DrawnCards {
  /** `isNamed` of those whose holders are known to be on them. */
  cards: (Card & { isNamed: boolean })[];
  /** Whether every holder's card is known. */
  areNumbered: boolean;
  /** Holders for whom no card has room: nothing is known of what they hold together. */
  others: Holder[];
}

/** The cards of a node with all holders. One whose card nobody names, since the node's kubelet chose it, stands on a card that has room,
 *  so that a card that looks idle is one: only not which. */
export function drawnCards(node: NodeCards): DrawnCards {
  const cards = node.cards.map((card) => ({ ...card, holders: [...card.holders], isNamed: card.holders.length > 0 }));
  const others: Holder[] = [];
  for (const holder of [...node.elsewhere].sort((a, b) => b.share - a.share)) {
    const card = cards.find((one) => !one.isNamed && one.allocated + holder.share < 1.001 && !one.holders.some((other) => other.pod === holder.pod && other.namespace === holder.namespace));
    if (!card) {
      others.push(holder);
      continue;
    }
    card.holders.push(holder);
    card.allocated += holder.share;
  }
  return { cards, areNumbered: node.elsewhere.length === 0, others };
}

/** How many GPUs are at work now: the sum of what the measured ones say; undefined where none is measured. */
export function usedGpus(nodes: NodeCards[]): number | undefined {
  const measured = nodes.flatMap((node) => node.cards.map((card) => card.utilization)).filter((percent) => percent !== null);
  return measured.length ? measured.reduce((sum, percent) => sum + percent / 100, 0) : undefined;
}

/** Labels of places that nodes have, in the order of the first that has them. */
export function placesOf(nodes: NodeCards[]): string[] {
  return [...new Set(nodes.flatMap((node) => node.topology.map((place) => place.label)))];
}

/** Nodes by the value of one label, in the order of the values; those without it come last, under "". */
export function groupNodes(nodes: NodeCards[], label: string): [string, NodeCards[]][] {
  const found = new Map<string, NodeCards[]>();
  for (const node of nodes) {
    const value = node.topology.find((place) => place.label === label)?.value ?? "";
    found.set(value, [...(found.get(value) ?? []), node]);
  }
  const order = new Intl.Collator("en", { numeric: true });
  return [...found].sort(([a], [b]) => (a === "" ? 1 : b === "" ? -1 : order.compare(a, b)));
}

export function holderName(holder: Holder): string {
  return holder.workloadName || holder.pod;
}

const TONES = 6;
const tones = new Map<string, number>();

/** A tone for a name: it keeps it while the page is open, and neighbours differ: names take the tones in turn. */
export function toneOf(name: string): number {
  const tone = tones.get(name) ?? tones.size % TONES;
  tones.set(name, tone);
  return tone;
}

const FAILED = new Set(["Failed", "Degraded"]);

/** What went wrong lately, the newest first. */
export function recentFailures(rows: Iterable<Row>, count: number): Row[] {
  const failed = [...rows].filter((row) => FAILED.has(row.phase));
  return failed.sort((a, b) => (a.phaseUpdatedAt < b.phaseUpdatedAt ? 1 : -1)).slice(0, count);
}
