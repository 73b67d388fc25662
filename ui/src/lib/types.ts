// What the server tells: rows of the live stream, and the bodies of the REST API as far as they are shown.

export interface Row {
  id: string;
  name: string;
  type: string;
  distributedFramework: string;
  category: string;
  phase: string;
  phaseReason: string | null;
  phaseUpdatedAt: string;
  why: string;
  projectName: string;
  departmentName: string;
  namespace: string;
  submittedBy: string;
  priorityClassName: string;
  preemptible: boolean;
  createdAt: string;
  completedAt: string | null;
  startedAt: string | null;
  runningPods: number;
  requestedPods: number;
  minPods: number | null;
  maxPods: number | null;
  failedPods: number;
  images: string[];
  nodePool: string;
  nodes: string[];
  gpuRequest: number;
  gpuAllocation: number;
  gpuMemoryAllocation: string;
  kind: string;
  clusterId: string;
  canStop: boolean;
  cpuRequest?: number;
  cpuAllocation?: number;
  cpuMemoryRequest?: string;
  cpuMemoryAllocation?: string;
  gpuMemoryRequest?: string;
  dataSources?: { name: string; type: string }[];
  connections?: { name: string; port: number }[];
  aiApplication?: string;
  requestedRuns?: number;
  ranAt?: string;
  guaranteedUntil?: string;
  idleGpus?: number;
}

export interface Session {
  user: string;
  version: string;
  cluster: string;
  /** Whether the server is over a Kubernetes cluster, whose pods run images, and not this machine's programs. */
  isReal: boolean;
}

export interface Pod {
  name: string;
  rank: string;
  status: string;
  nodeName: string | null;
  k8sPhase: string;
  containers: { name: string; image: string }[];
  currentNodePool?: string;
  allocatedResources?: { gpu?: number; gpuMemory?: string };
}

/** An object of a workload; `owner` is the `id` of the one that it stands below, null for the job. */
export interface StructureObject {
  id: string;
  owner: string | null;
  kind: string;
  name: string;
  status: string;
}

export interface EventRecord {
  meta: { creationTimestamp: string; type: "PhaseUpdate" | "Event" };
  spec: {
    phaseUpdate?: { phase: string; phaseMessage: string };
    event?: {
      type: string;
      reason: string;
      message: string;
      count: number;
      source: string;
      involvedObject: { kind: string; name: string };
    };
  };
}

export interface Why {
  sentence: string;
  phase: string;
  incidents: { sentence: string; rank?: number | string }[];
  verdict: { kind: string; sentence: string } | null;
}

export interface Project {
  id: string;
  name: string;
  clusterId: string;
}

/** What the worker that holds the stream tells its pages. */
export type StreamMessage =
  | { type: "reset"; rows: Row[] }
  | { type: "rows"; rows: Row[] }
  | { type: "gone"; ids: string[] }
  | { type: "ready"; time: number }
  | { type: "state"; state: StreamState; key: string }; // of the session that it is about

export type StreamState = "connecting" | "live" | "reconnecting" | "signed-out";

/** What a page tells the worker. */
export type PageMessage = { type: "follow"; key: string; url: string } | { type: "leave" };

/** The ways in that the server offers. */
export interface Logins {
  password: boolean;
  oidc: { name: string } | null;
  code: boolean;
  /** People have tokens of the cluster. */
  token: boolean;
}
