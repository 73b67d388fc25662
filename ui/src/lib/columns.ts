// The columns of the Workloads table: what is shown, how it is sorted, which are there at first.

import { age, localTime, number, span } from "./format";
import type { Row } from "./types";

export interface Column {
  key: string;
  title: string;
  text: (row: Row, now: number) => string;
  order: (row: Row) => string | number;
  isShown: boolean;
  isNumber?: boolean;
  width: number;
}

const word = (key: keyof Row, title: string, isShown: boolean, width = 120): Column => ({
  key,
  title,
  text: (row) => String(row[key] ?? ""),
  order: (row) => String(row[key] ?? "").toLowerCase(),
  isShown,
  width,
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
  word("name", "Workload", true, 200),
  word("type", "Type", true, 110),
  word("phase", "Status", true, 136),
  word("why", "Why", true, 300),
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
    isShown: true,
    width: 90,
  },
  word("distributedFramework", "Framework", false),
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
  word("submittedBy", "Created by", false),
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
  word("gpuMemoryRequest", "GPU memory request", false),
  word("gpuMemoryAllocation", "GPU memory allocation", false),
  amount("cpuRequest", "CPU compute request"),
  amount("cpuAllocation", "CPU compute allocation"),
  word("cpuMemoryRequest", "CPU memory request", false),
  word("cpuMemoryAllocation", "CPU memory allocation", false),
  {
    key: "completedAt",
    title: "Completion time",
    text: (row) => localTime(row.completedAt),
    order: (row) => row.completedAt ?? "",
    isShown: false,
    width: 190,
  },
  {
    key: "runtime",
    title: "Total runtime",
    text: (row, now) => runtime(row, now),
    order: (row) => Date.parse(row.completedAt ?? new Date().toISOString()) - Date.parse(row.startedAt ?? row.createdAt),
    isShown: false,
    isNumber: true,
    width: 110,
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
    text: (row) => row.dataSources?.join(", ") ?? "",
    order: (row) => row.dataSources?.join(",") ?? "",
    isShown: false,
    width: 160,
  },
  word("clusterId", "Cluster", false, 280),
  {
    key: "nodes",
    title: "Node(s)",
    text: (row) => row.nodes.join(", "),
    order: (row) => row.nodes.join(","),
    isShown: false,
    width: 160,
  },
];

function podRange(row: Row): string {
  return row.minPods !== null && row.maxPods !== null && row.minPods !== row.maxPods
    ? `${row.minPods}-${row.maxPods}`
    : String(row.requestedPods);
}

function runtime(row: Row, now: number): string {
  if (!row.startedAt) return "";
  const end = row.completedAt ? Date.parse(row.completedAt) : now;
  return span((end - Date.parse(row.startedAt)) / 1000);
}

export interface Filter {
  key: string;
  value: string;
}

/** The rows that a search and all filters leave, sorted. Several values of one column are alternatives. */
export function selectRows(all: Iterable<Row>, search: string, filters: Filter[], key: string, isDescending: boolean): Row[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const byColumn = new Map<string, Set<string>>();
  for (const filter of filters) byColumn.set(filter.key, (byColumn.get(filter.key) ?? new Set()).add(filter.value));
  const wanted = [...byColumn].map(([column, values]) => [findColumn(column), values] as const);
  const kept: Row[] = [];
  for (const row of all) {
    if (wanted.some(([column, values]) => !values.has(column.text(row, 0)))) continue;
    if (words.length && !matches(row, words)) continue;
    kept.push(row);
  }
  const { order } = findColumn(key);
  const sign = isDescending ? -1 : 1;
  const keyed = kept.map((row) => [order(row), row] as const);
  keyed.sort(([a, rowA], [b, rowB]) => (a < b ? -sign : a > b ? sign : rowA.id < rowB.id ? -1 : 1));
  return keyed.map(([, row]) => row);
}

function matches(row: Row, words: string[]): boolean {
  const text = `${row.name} ${row.type} ${row.distributedFramework} ${row.phase} ${row.projectName} ${row.submittedBy} ${row.images.join(" ")} ${row.why}`.toLowerCase();
  return words.every((part) => text.includes(part));
}

export function findColumn(key: string): Column {
  return COLUMNS.find((column) => column.key === key) ?? (COLUMNS[0] as Column);
}

/** As spreadsheets take it: a cell that a spreadsheet would compute is shown as text. */
export function toCsv(rows: Row[], columns: Column[]): string {
  const cell = (text: string): string => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  const exact = (column: Column, row: Row): string => (column.key === "createdAt" ? row.createdAt : column.text(row, Date.now()));
  const lines = rows.slice(0, 20_000).map((row) => columns.map((column) => cell(exact(column, row))).join(","));
  return [columns.map((column) => cell(column.title)).join(","), ...lines].join("\r\n") + "\r\n";
}
