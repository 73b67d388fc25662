// The columns of the tables of projects and of departments.

import { age, localTime, number, size, utcTime } from "./format";
import { quotaText, type Unit } from "./quotas";
import type { TableColumn } from "./table";

const MB = 1e6;
const RANGE = "range7dData";

type Column = TableColumn<Unit>;

const word = (key: string, title: string, of: (unit: Unit) => string, more: Partial<Column> = {}): Column => ({
  key, title, text: of, order: (unit) => of(unit).toLowerCase(), isShown: false, width: 130, ...more,
});
const amount = (key: string, title: string, of: (unit: Unit) => number, text: (value: number) => string, more: Partial<Column> = {}): Column => ({
  key, title, text: (unit) => text(of(unit)), order: of, isNumber: true, isShown: false, width: 110, ...more,
});
const cores = (millicores: number): string => number(millicores / 1000);
const megabytes = (amount: number): string => size(amount * MB);

/** A mean of the last week, or since the server started. */
function average(figure: "averageGpuAllocation" | "averageGpuUtilization" | "averageGpuMemoryUtilization", title: string, unit: "" | " %"): Column {
  const of = (one: Unit): number | null => one.overtimeData?.[RANGE][figure] ?? null;
  return {
    key: figure,
    title,
    text: (one) => (of(one) === null ? "" : `${number(of(one) ?? 0)}${unit}`),
    order: (one) => of(one) ?? -1,
    absence: (one) =>
      one.overtimeData && figure !== "averageGpuAllocation"
        ? "Not measured: it held no GPU that this server reads (NVML) since it began; simulated ones do nothing."
        : "The server has just begun: it looks every 15 seconds.",
    hint: () => "Over the last seven days, or since the server began",
    isShown: false,
    isNumber: true,
    width: 120,
  };
}

/** Held GPUs in percent of deserved GPUs. */
function ratio(resource: "gpu" | "cpu" | "memory", title: string): Column {
  const quota = (one: Unit): number => one.totalResources[`${resource}Quota` as const];
  const of = (one: Unit): number => (quota(one) > 0 ? (one.status.quotaStatus.allocated[resource] / quota(one)) * 100 : -1);
  return {
    key: `${resource}Ratio`,
    title,
    text: (one) => (of(one) < 0 ? "" : `${Math.round(of(one))} %`),
    order: of,
    absence: (one) => (quota(one) === 0 ? "Nothing is promised to it: there is no ratio." : "Its quota has no bound: there is no ratio."),
    hint: () => "What is allocated, of the quota",
    isShown: false,
    isNumber: true,
    width: 110,
  };
}

function workloadsText({ count }: Unit): string {
  return `${count.all} (${count.running} running, ${count.waiting} pending)`;
}

const PROJECT_OWN: Column[] = [
  word("department", "Department", (unit) => unit.parent?.name ?? "", { isShown: true }),
];
const DEPARTMENT_OWN: Column[] = [
  {
    key: "projects",
    title: "Project(s)",
    text: (unit) => String(unit.children?.length ?? 0),
    order: (unit) => unit.children?.length ?? 0,
    isShown: true,
    isNumber: true,
    width: 100,
  },
];

function unitColumns(title: "Project" | "Department", own: Column[]): Column[] {
  const isProject = title === "Project";
  return [
    word("name", title, (unit) => unit.name, { isShown: true, isUnique: true }),
    word("description", "Description", (unit) => unit.description, { absence: () => `The ${title.toLowerCase()} has no description.`, isUnique: true }),
    ...own,
    word("cluster", "Cluster", (unit) => unit.clusterId),
    word("phase", "Status", (unit) => unit.status.phase ?? "", {
      absence: () => "A department has no status of its own: its projects have.",
      hint: (unit) => unit.status.phaseMessage ?? "",
      isShown: isProject,
    }),
    word("nodePools", "Node pool(s)", (unit) => unit.defaultNodePools.join(", "), { hint: () => "Where its workloads go that name none; quotas count over all node pools" }),
    word("subjects", "Subject(s)", (unit) => [...new Set(unit.subjects.map((one) => one.subjectId))].join(", "), {
      absence: () =>
        isProject
          ? "No access rule of this project names anybody, as far as you may see; rules for the whole cluster hold besides."
          : "Rights are given in one project, or in all: Kubernetes binds roles in namespaces.",
      isUnique: true,
    }),
    amount("quota", "GPU quota", (unit) => unit.totalResources.gpuQuota, quotaText, { isShown: true }),
    amount("fairShare", "Fair share", (unit) => unit.status.quotaStatus.fairShare.gpu, number, { isShown: true, hint: () => "What it may expect of the cluster now, of what it asks for" }),
    amount("allocated", "Allocated GPUs", (unit) => unit.status.quotaStatus.allocated.gpu, number, { isShown: true }),
    amount("requested", "Requested GPUs", (unit) => unit.status.quotaStatus.requested.gpu, number, { isShown: true }),
    ratio("gpu", "GPU allocation ratio"),
    average("averageGpuAllocation", "Avg. GPU allocation", ""),
    average("averageGpuUtilization", "Avg. GPU utilization", " %"),
    average("averageGpuMemoryUtilization", "Avg. GPU memory utilization", " %"),
    amount("cpuQuota", "CPU quota", (unit) => unit.totalResources.cpuQuota, (value) => (value < 0 ? "unlimited" : cores(value)), { hint: () => "Cores" }),
    amount("allocatedCpus", "Allocated CPUs", (unit) => unit.status.quotaStatus.allocated.cpu, cores),
    ratio("cpu", "CPU allocation ratio"),
    amount("memoryQuota", "CPU memory quota", (unit) => unit.totalResources.memoryQuota, (value) => (value < 0 ? "unlimited" : megabytes(value))),
    amount("allocatedMemory", "Allocated CPU memory", (unit) => unit.status.quotaStatus.allocated.memory, megabytes),
    ratio("memory", "CPU memory allocation ratio"),
    word("affinity", "Node type affinity", () => "", { absence: () => `A ${title.toLowerCase()} has none here: a workload names its own node type (--node-type).` }),
    word("idleLimits", "Idle limits", () => "", { absence: () => `A ${title.toLowerCase()} has none here: nothing is stopped because it is idle.` }),
    word("timeLimits", "Time limits", () => "", {
      absence: () => `A ${title.toLowerCase()} has none here: a workload names its own (--auto-deletion-time-after-completion, or activeDeadlineSeconds of its job).`,
    }),
    word("createdAt", "Creation time", () => "", {
      text: (unit, now) => `${age(unit.createdAt, now)} ago`,
      order: (unit) => unit.createdAt,
      hint: (unit) => `${localTime(unit.createdAt)} · ${utcTime(unit.createdAt)}`,
      exact: (unit) => unit.createdAt,
      isUnique: true,
    }),
    { key: "workloads", title: "Workload(s)", text: workloadsText, order: (unit) => unit.count.all, isShown: true, isUnique: true, width: 200 },
  ];
}

export const PROJECT_COLUMNS = unitColumns("Project", PROJECT_OWN);
export const DEPARTMENT_COLUMNS = unitColumns("Department", DEPARTMENT_OWN);
