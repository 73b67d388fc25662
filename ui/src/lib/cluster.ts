// The cluster's GPU cards and their holders, and the order of waiting workloads.

import type { Card, CardHolder as Holder, NodeCards } from "./answers";
import type { Row } from "./types";

export type { Card, NodeCards, WaitingGang as Waiting, WaitingOrder } from "./answers";

/** Whether a node accepts new pods. */
export function isOpen(node: NodeCards): boolean {
  return node.status === "Ready" && !node.unschedulable;
}

/** GPUs of all nodes: total, held, and free on nodes that accept pods. */
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
  /** `isNamed`: its holders are known to be on this card. */
  cards: (Card & { isNamed: boolean })[];
  /** Whether every holder's card is known. */
  areNumbered: boolean;
  /** Holders that fit on no card: their cards are unknown. */
  others: Holder[];
}

/** The cards of a node with all holders. A holder whose card is unknown (the kubelet chose it) is put on a card with room,
 *  so that the number of idle cards is right, though not which they are. */
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

/** The number of busy GPUs: the sum of the measured utilizations; undefined where none is measured. */
export function usedGpus(nodes: NodeCards[]): number | undefined {
  const measured = nodes.flatMap((node) => node.cards.map((card) => card.utilization)).filter((percent) => percent !== null);
  return measured.length ? measured.reduce((sum, percent) => sum + percent / 100, 0) : undefined;
}

/** The topology labels of the nodes, in order of appearance. */
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

/** A colour for a name, kept while the page is open. Names take the colours in turn, so neighbours differ. */
export function toneOf(name: string): number {
  const tone = tones.get(name) ?? tones.size % TONES;
  tones.set(name, tone);
  return tone;
}

const FAILED = new Set(["Failed", "Degraded"]);

/** Recent failures, newest first. */
export function recentFailures(rows: Iterable<Row>, count: number): Row[] {
  const failed = [...rows].filter((row) => FAILED.has(row.phase));
  return failed.sort((a, b) => (a.phaseUpdatedAt < b.phaseUpdatedAt ? 1 : -1)).slice(0, count);
}
