// Workloads that were deleted, as the REST API lists them, as rows of the table.

import { COLUMNS, type Column } from "./columns";
import { age, localTime, utcTime } from "./format";
import type { Workload } from "./answers";
import type { Row } from "./types";

export interface DeletedRow extends Row {
  deletedAt: string;
}

/** The request is known; a deleted workload holds nothing. */
export function rowOf(body: Workload): DeletedRow {
  const { requestedPods: pods, workloadRequestedResources: asked, additionalFields: more } = body;
  const end = body.completedAt ?? body.deletedAt;
  const ranFor = more.ranForSeconds ?? body.totalRunningTimeSeconds ?? 0;
  return {
    id: body.id, name: body.name, type: body.type, distributedFramework: body.distributedFramework, category: body.category, phase: body.phase,
    phaseReason: body.phaseReason, phaseUpdatedAt: body.phaseUpdatedAt, why: body.phaseMessage, projectName: body.projectName, departmentName: body.departmentName,
    namespace: body.namespace, submittedBy: body.submittedBy, priorityClassName: body.priorityClassName, preemptible: body.preemptible, createdAt: body.createdAt,
    completedAt: end, startedAt: more.startedAt, runningPods: 0, requestedPods: pods.number, minPods: pods.min, maxPods: pods.max, failedPods: more.failedPods,
    images: body.images, nodePool: body.requestedNodePools[0] ?? "", nodes: more.nodes, gpuRequest: asked.gpu.request ?? 0, gpuAllocation: 0, gpuMemoryAllocation: "",
    kind: more.kind, clusterId: body.clusterId, canStop: false, deletedAt: body.deletedAt ?? "", dataSources: body.datasources.map((one) => ({ name: one.name, type: one.type ?? "" })),
    connections: more.ports,
    ...(asked.cpu.request ? { cpuRequest: asked.cpu.request } : {}),
    ...(asked.cpuMemory.request ? { cpuMemoryRequest: asked.cpuMemory.request } : {}),
    ...(asked.gpuMemory.request ? { gpuMemoryRequest: asked.gpuMemory.request } : {}),
    ...(body.aiApplicationName ? { aiApplication: body.aiApplicationName } : {}),
    ...(more.cronJob ? { cronJob: more.cronJob } : {}),
    ...(pods.completions ? { requestedRuns: pods.completions } : {}),
    ...(end && ranFor ? { ranAt: new Date(Date.parse(end) - ranFor * 1000).toISOString() } : {}),
  };
}

const DELETED_AT: Column = {
  key: "deletedAt",
  title: "Deletion time",
  text: (row, now) => `${age((row as DeletedRow).deletedAt, now)} ago`,
  order: (row) => (row as DeletedRow).deletedAt,
  hint: (row) => `${localTime((row as DeletedRow).deletedAt)} · ${utcTime((row as DeletedRow).deletedAt)}`,
  exact: (row) => (row as DeletedRow).deletedAt,
  isShown: true,
  isUnique: true,
  width: 110,
};
const HELD_NOW = ["gpuAllocation", "gpuMemoryAllocation", "cpuAllocation", "cpuMemoryAllocation", "idleGpus", "guaranteed", "connections"];
const SHOWN = ["name", "type", "phase", "why", "projectName", "runtime", "deletedAt"];

/** The table's columns without those that only an existing workload has. */
export const DELETED_COLUMNS: Column[] = [...COLUMNS.filter((column) => !HELD_NOW.includes(column.key)), DELETED_AT].map((column) => ({
  ...column,
  isShown: SHOWN.includes(column.key),
}));
