// The columns of the table of nodes.

import { holderName, isOpen, type NodeCards } from "./cluster";
import { age, localTime, number, size, utcTime } from "./format";
import type { TableColumn } from "./table";

const MIB = 2 ** 20;
const NO_GPU = (): string => "It has no GPU.";

const word = (key: string, title: string, of: (node: NodeCards) => string, more: Partial<TableColumn<NodeCards>> = {}): TableColumn<NodeCards> => ({
  key, title, text: of, order: (node) => of(node).toLowerCase(), isShown: true, width: 120, ...more,
});
const amount = (key: string, title: string, of: (node: NodeCards) => number, text: (value: number) => string, more: Partial<TableColumn<NodeCards>> = {}): TableColumn<NodeCards> => ({
  key, title, text: (node) => text(of(node)), order: of, isNumber: true, isShown: true, width: 110, ...more,
});
/** Only for nodes with GPUs. */
const ofGpus = (column: TableColumn<NodeCards>): TableColumn<NodeCards> => ({
  absence: NO_GPU, ...column, text: (node, now) => (node.totalGpus ? column.text(node, now) : ""),
});

export function stateOf(node: NodeCards): string {
  return node.status !== "Ready" ? node.status : node.unschedulable ? "Takes no pods" : "Ready";
}

/** The mark of simulated GPUs, with the same words as on the command line. */
export const SIMULATED = "These GPUs are simulated: they do no work, and their type and memory are made up.";

export function gpuTypeOf(node: NodeCards): string {
  return [node.gpuType, node.gpusSimulated ? "(simulated)" : ""].filter(Boolean).join(" ");
}

/** Wholly free GPUs of nodes that accept pods. */
function freeDevices(node: NodeCards): number {
  if (!isOpen(node)) return 0;
  return Math.max(0, node.cards.filter((card) => card.allocated === 0).length - Math.ceil(node.elsewhere.reduce((sum, holder) => sum + holder.share, 0)));
}

export const NODE_COLUMNS: TableColumn<NodeCards>[] = [
  word("name", "Node", (node) => node.name, { isUnique: true }),
  word("phase", "Status", stateOf),
  word("nodePool", "Node pool", (node) => node.nodePool),
  word("gpuType", "GPU type", (node) => (node.totalGpus ? gpuTypeOf(node) : ""), {
    absence: (node) => (node.totalGpus ? "The node does not say: it has no label nvidia.com/gpu.product." : "It has no GPU."),
  }),
  ofGpus({
    ...word("gpuDevices", "Ready/total GPU devices", (node) => `${node.readyGpus}/${node.totalGpus}`),
    order: (node) => node.readyGpus,
    isNumber: true,
  }),
  ofGpus(amount("free", "Free GPU devices", freeDevices, number, { hint: () => "GPUs of which nobody holds a part, on a node that takes pods" })),
  ofGpus(amount("allocated", "Allocated GPUs", (node) => node.allocated, number)),
  amount("cpu", "CPU (Cores)", (node) => node.cpu, number),
  amount("allocatedCpu", "Allocated CPU", (node) => node.allocatedCpu, number, { hint: () => "Cores", isShown: false }),
  amount("memory", "CPU memory", (node) => node.memory, size),
  amount("allocatedMemory", "Allocated CPU memory", (node) => node.allocatedMemory, size, { isShown: false }),
  amount("pods", "Pod(s)", (node) => node.pods, String),
  ofGpus({
    ...amount("gpuMemory", "GPU memory", (node) => node.cardMemory * node.totalGpus * MIB, size, { isShown: false }),
    text: (node) => (node.cardMemory > 100 ? size(node.cardMemory * node.totalGpus * MIB) : ""),
    absence: (node) => (node.totalGpus ? "The node does not say: it has no label nvidia.com/gpu.memory." : "It has no GPU."),
  }),
  word("nvLink", "NVLink ids", (node) => [node.nvLinkDomainUid, node.nvLinkCliqueId].filter(Boolean).join(" · "), {
    absence: () => "The node has no label nvidia.com/gpu.clique: NVIDIA's GPU feature discovery writes it where there is an NVLink domain.",
    hint: () => "NVLink domain UID · clique ID",
    isShown: false,
  }),
  word("createdAt", "Creation time", () => "", {
    text: (node, now) => (node.createdAt ? `${age(node.createdAt, now)} ago` : ""),
    order: (node) => node.createdAt ?? "",
    hint: (node) => `${localTime(node.createdAt)} · ${utcTime(node.createdAt)}`,
    exact: (node) => node.createdAt ?? "",
    isUnique: true,
    isShown: false,
  }),
  word("cluster", "Cluster", (node) => node.clusterUuid, { isShown: false }),
];

/** The text that a search looks through: the node, its place, and the workloads on it. */
export function nodeText(node: NodeCards): string {
  const holders = [...node.cards.flatMap((card) => card.holders), ...node.elsewhere];
  return [node.name, node.nodePool, node.gpuType, node.status, ...node.topology.map((one) => one.value), ...holders.flatMap((one) => [holderName(one), one.projectName])].join(" ");
}
