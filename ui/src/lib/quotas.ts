// Projects and their GPU quotas; the scheduler can try other quotas without saving them.

import { number, shellWord } from "./format";

export interface Amounts {
  gpu: number;
  /** Millicores. */
  cpu: number;
  /** MB. */
  memory: number;
}

interface Averages {
  averageGpuAllocation: number | null;
  averageGpuUtilization: number | null;
  averageGpuMemoryUtilization: number | null;
}

/** A project or a department of the REST API. */
export interface OrganisationUnit {
  id: string;
  name: string;
  clusterId: string;
  description: string;
  createdAt: string;
  defaultNodePools: string[];
  status: {
    phase?: string;
    phaseMessage?: string;
    quotaStatus: { allocated: Amounts; requested: Amounts; fairShare: Amounts };
  };
  totalResources: { gpuQuota: number; cpuQuota: number; memoryQuota: number };
  resources: { gpu: { deserved: number; limit: number; overQuotaWeight: number } }[];
  overtimeData: Record<"range24hData" | "range7dData" | "range30dData", Averages> | null;
  /** Only for a department: its projects. */
  children?: { id: string; name: string }[];
  /** Only for a project: its department. */
  parent?: { id: string; name: string };
}

export interface Project extends OrganisationUnit {
  parent: { id: string; name: string };
}

/** A subject of an access rule. */
export interface RuleSubject {
  subjectId: string;
  subjectType: string;
  roleName: string;
  scopeType: string;
  scopeId: string;
}

/** Joined with figures from other answers. */
export interface Unit extends OrganisationUnit {
  count: { all: number; running: number; waiting: number };
  subjects: RuleSubject[];
}

export interface Named {
  workloadId: string;
  name: string;
  projectName: string;
  pods: number;
}

export interface QuotaOutcome {
  starts: Named[];
  startsAfter: Named[];
  waits: Named[];
  yields: (Named & { action: string })[];
  fairShares: { projectId: string; gpu: number }[];
}

export const UNLIMITED = -1;

/** The end of the scale of the quota sliders: beyond every quota and request. */
export function scaleOf(projects: Project[]): number {
  const amounts = projects.flatMap(({ totalResources, status }) => [totalResources.gpuQuota, status.quotaStatus.allocated.gpu, status.quotaStatus.requested.gpu]);
  const most = Math.max(4, ...amounts.filter(Number.isFinite));
  const step = most <= 16 ? 4 : most <= 64 ? 8 : 10 ** Math.floor(Math.log10(most));
  return Math.ceil((most * 1.25) / step) * step;
}

export function quotaText(quota: number): string {
  return quota < 0 ? "unlimited" : number(quota);
}

/** The equivalent command. */
export function commandOf(project: Pick<Project, "name">, quota: number): string {
  return `rowlock project update ${shellWord(project.name)} --gpus ${quota < 0 ? "unlimited" : quota}`;
}
