// The columns of the Workloads table: text, order, and which are shown by default.

import { age, bytesOf, localTime, number, span, took, utcTime } from "./format";
import { selectItems, type Filter, type TableColumn } from "./table";
import type { Row } from "./types";

export type Column = TableColumn<Row>;
export type { Filter };

const word = (key: keyof Row, title: string, isShown: boolean, width = 120): Column => ({
  key,
  title,
  text: (row) => String(row[key] ?? ""),
  order: (row) => String(row[key] ?? "").toLowerCase(),
  isShown,
  width,
});

/** A column of memory quantities, sorted by bytes. 0Mi counts as none. */
const memory = (key: "gpuMemoryRequest" | "gpuMemoryAllocation" | "cpuMemoryRequest" | "cpuMemoryAllocation", title: string, absence: (row: Row) => string): Column => ({
  ...word(key, title, false),
  text: (row) => (bytesOf(row[key] ?? "") ? (row[key] ?? "") : ""),
  order: (row) => bytesOf(row[key] ?? ""),
  absence,
  isNumber: true,
});

const amount = (key: "cpuRequest" | "cpuAllocation", title: string): Column => ({
  key,
  title,
  text: (row) => number(row[key] ?? 0),
  order: (row) => row[key] ?? 0,
  isShown: false,
  isNumber: true,
  width: 110,
});

export const COLUMNS: Column[] = [
  { ...word("name", "Workload", true, 200), isUnique: true },
  word("type", "Type", true, 110),
  word("phase", "Status", true, 136),
  { ...word("why", "Why", true, 300), isUnique: true },
  word("projectName", "Project", true, 120),
  {
    key: "pods",
    title: "Running/requested pods",
    text: (row) => `${row.runningPods}/${podRange(row)}`,
    order: (row) => row.runningPods,
    isShown: true,
    width: 164,
  },
  {
    key: "gpuAllocation",
    title: "GPU compute allocation",
    text: (row) => number(row.gpuAllocation),
    order: (row) => row.gpuAllocation,
    isShown: true,
    isNumber: true,
    width: 120,
  },
  {
    key: "createdAt",
    title: "Creation time",
    text: (row, now) => `${age(row.createdAt, now)} ago`,
    order: (row) => row.createdAt,
    hint: (row) => `${localTime(row.createdAt)} · ${utcTime(row.createdAt)}`,
    exact: (row) => row.createdAt,
    isShown: true,
    isUnique: true,
    width: 90,
  },
  word("distributedFramework", "Framework", false),
  {
    key: "architecture",
    title: "Workload architecture",
    text: (row) => (row.type === "Distributed" ? "Distributed" : row.type ? "Standard" : ""),
    order: (row) => (row.type === "Distributed" ? 1 : 0),
    isShown: false,
    width: 130,
  },
  word("category", "Category", false),
  word("priorityClassName", "Priority", false),
  {
    key: "preemptible",
    title: "Preemptible",
    text: (row) => (row.preemptible ? "Yes" : "No"),
    order: (row) => (row.preemptible ? 1 : 0),
    isShown: false,
    width: 110,
  },
  word("departmentName", "Department", false),
  { ...word("submittedBy", "Created by", false), text: madeBy, order: madeBy, absence: () => "It does not say: it came through the Kubernetes API." },
  word("nodePool", "Node pool(s)", false),
  {
    key: "gpuRequest",
    title: "GPU compute request",
    text: (row) => number(row.gpuRequest),
    order: (row) => row.gpuRequest,
    isShown: false,
    isNumber: true,
    width: 110,
  },
  memory("gpuMemoryRequest", "GPU memory request", (row) => (row.gpuRequest ? "It asks for GPUs or shares of them, not for an amount of memory." : "It asks for no GPU.")),
  memory("gpuMemoryAllocation", "GPU memory allocation", (row) => (row.gpuAllocation ? "Its nodes do not say how much memory their GPUs have." : "It holds no GPU.")),
  {
    key: "idleGpus",
    title: "Idle GPU devices",
    text: (row) => (row.idleGpus === undefined ? "" : String(row.idleGpus)),
    order: (row) => row.idleGpus ?? -1,
    absence: (row) =>
      row.gpuAllocation ? "Not measured: its GPUs are simulated, or on a node whose GPUs this server does not read (NVML)." : "It holds no GPU.",
    hint: () => "GPUs that it holds and that did nothing for five minutes",
    isShown: false,
    isNumber: true,
    width: 110,
  },
  amount("cpuRequest", "CPU compute request"),
  amount("cpuAllocation", "CPU compute allocation"),
  memory("cpuMemoryRequest", "CPU memory request", () => "It asks for no amount: it takes what is there."),
  memory("cpuMemoryAllocation", "CPU memory allocation", () => "It holds none, or asked for no amount."),
  {
    key: "completedAt",
    title: "Completion time",
    text: (row) => localTime(row.completedAt),
    order: (row) => row.completedAt ?? "",
    absence: () => "It is not over.",
    hint: (row) => utcTime(row.completedAt),
    exact: (row) => row.completedAt ?? "",
    isShown: false,
    isUnique: true,
    width: 190,
  },
  {
    key: "pending",
    title: "Total pending time",
    text: (row, now) => (isSuspended(row) ? "" : span(pendingSeconds(row, now))),
    order: (row) => (isSuspended(row) ? -1 : pendingSeconds(row, Date.now())),
    absence: () => "It is stopped: it neither waits nor runs.",
    exact: (row) => (isSuspended(row) ? "" : `${Math.round(pendingSeconds(row, Date.now()))}s`),
    hint: () => "From its creation until its pods ran, or until now",
    isShown: false,
    isNumber: true,
    isUnique: true,
    width: 110,
  },
  {
    key: "runtime",
    title: "Total runtime",
    text: (row, now) => (row.ranAt && !isSuspended(row) ? ranFor(row, now) : ""),
    order: (row) => (row.ranAt && !isSuspended(row) ? runningSeconds(row, Date.now()) : -1),
    absence: (row) => (isSuspended(row) ? "It is stopped: it neither waits nor runs." : "It has not run yet."),
    isShown: false,
    isNumber: true,
    isUnique: true,
    width: 110,
  },
  {
    key: "guaranteed",
    title: "Guaranteed time left",
    text: (row, now) => (row.guaranteedUntil ? span((Date.parse(row.guaranteedUntil) - now) / 1000) : ""),
    order: (row) => row.guaranteedUntil ?? "",
    absence: (row) =>
      !row.preemptible
        ? "It is not preemptible: nobody takes what it holds."
        : row.gpuAllocation || row.runningPods
          ? "Its project's queue sets no minimum runtime: what it holds may be taken at any time."
          : "It holds nothing that could be taken.",
    hint: (row) => `Until ${localTime(row.guaranteedUntil ?? null)} nobody takes what it holds`,
    exact: (row) => row.guaranteedUntil ?? "",
    isShown: false,
    isNumber: true,
    isUnique: true,
    width: 130,
  },
  {
    key: "requestedRuns",
    title: "Requested runs",
    text: (row) => (row.requestedRuns === undefined ? "" : String(row.requestedRuns)),
    order: (row) => row.requestedRuns ?? 0,
    absence: (row) => (row.type === "Workspace" ? "A workspace runs until it is stopped." : "A distributed workload runs once, all its pods together."),
    isShown: false,
    isNumber: true,
    width: 110,
  },
  {
    ...word("aiApplication", "AI application", false, 150),
    absence: () => "It names none: a Helm release, or the label app.kubernetes.io/part-of, would.",
  },
  {
    key: "connections",
    title: "Connection(s)",
    text: (row) => row.connections?.map((one) => one.name).join(", ") ?? "",
    order: (row) => row.connections?.length ?? 0,
    absence: () => "Its pods name no port.",
    isShown: false,
    width: 140,
  },
  {
    key: "images",
    title: "Image",
    text: (row) => row.images.join(", "),
    order: (row) => row.images.join(","),
    isShown: false,
    width: 240,
  },
  {
    key: "dataSources",
    title: "Data source(s)",
    text: (row) => row.dataSources?.map((one) => one.name).join(", ") ?? "",
    order: (row) => row.dataSources?.map((one) => one.name).join(",") ?? "",
    absence: () => "It was submitted without a data source.",
    isShown: false,
    width: 160,
  },
  word("clusterId", "Cluster", false, 280),
  {
    key: "nodes",
    title: "Node(s)",
    text: (row) => row.nodes.join(", "),
    order: (row) => row.nodes.join(","),
    absence: () => "None of its pods has a node.",
    isShown: false,
    width: 160,
  },
];

function podRange(row: Row): string {
  return row.minPods !== null && row.maxPods !== null && row.minPods !== row.maxPods
    ? `${row.minPods}-${row.maxPods}`
    : String(row.requestedPods);
}

const isSuspended = (row: Row): boolean => row.phase === "Stopped" || row.phase === "Stopping";

function pendingSeconds(row: Row, now: number): number {
  const end = row.ranAt ?? row.completedAt;
  return Math.max(0, (end ? Date.parse(end) : now) - Date.parse(row.createdAt)) / 1000;
}

/** The duration of an ended workload, in tenths of a second where they are known: a job's own times have whole seconds. */
function ranFor(row: Row, now: number): string {
  const seconds = runningSeconds(row, now);
  return row.completedAt && !Number.isInteger(seconds) ? took(seconds) : span(seconds);
}

function runningSeconds(row: Row, now: number): number {
  return Math.max(0, (row.completedAt ? Date.parse(row.completedAt) : now) - Date.parse(row.ranAt ?? row.createdAt)) / 1000;
}

/** The rows that match the search and all filters, sorted. */
export function selectRows(all: Iterable<Row>, search: string, filters: Filter[], key: string, isDescending: boolean): Row[] {
  return selectItems(all, COLUMNS, { search, filters, sort: { key, isDescending } }, searchText, (row) => row.id);
}

export function searchText(row: Row): string {
  return `${row.name} ${row.type} ${row.distributedFramework} ${row.phase} ${row.projectName} ${madeBy(row)} ${row.aiApplication ?? ""} ${row.images.join(" ")} ${row.why}`;
}


/** The person who submitted it, or the CronJob that made it. */
function madeBy(row: Row): string {
  return row.cronJob ? `CronJob ${row.cronJob}` : row.submittedBy;
}
