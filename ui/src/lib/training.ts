// A new training: the form's contents, the request body, and the equivalent command.

import { flagsOf, masterFlags, withProgram } from "./flags";
import { shellWord } from "./format";
import type { FormField, Spec } from "./forms";
import { readAffinity, readTolerations, writeAffinity, writeTolerations } from "./placement";

export interface Variable {
  name: string;
  value?: string;
}

/** What a pod runs: Run:ai's environment, with the fields of a request's `spec`. */
export interface Environment {
  name: string;
  spec: { image?: string; command?: string; args?: string; environmentVariables?: Variable[]; [field: string]: unknown };
}

/** What a pod gets: Run:ai's compute resource, with the fields of a request's `compute`. */
export interface Compute {
  name: string;
  spec: {
    gpuDevicesRequest?: number;
    gpuRequestType?: string;
    gpuPortionRequest?: number;
    gpuMemoryRequest?: string;
    cpuCoreRequest?: number;
    cpuMemoryRequest?: string;
    [field: string]: unknown;
  };
}

export const FRAMEWORKS = [
  ["PyTorch", "PyTorch"],
  ["TF", "TensorFlow"],
  ["MPI", "MPI"],
  ["XGBoost", "XGBoost"],
  ["JAX", "JAX"],
] as const;
const MASTERLESS = ["PyTorch", "TF", "XGBoost"]; // frameworks that need no master

export const HOST: Environment = { name: "this-machine", spec: { image: "rowlock.dev/host", command: "" } };

/** A data source of the project, which the server expands. */
export interface Source {
  id: string;
  kind: string;
  name: string;
}

export interface Training {
  projectId: string;
  projectName: string;
  clusterId: string;
  /** A workspace is one pod for interactive work, and is not preempted. */
  type: "Training" | "Workspace";
  architecture: "Standard" | "Distributed";
  framework: string;
  configuration: "Workers & master" | "Workers only" | "Master only";
  name: string;
  environment: Environment | undefined;
  compute: Compute | undefined;
  workers: number;
  priority: string;
  sources: Source[];
  /** Settings of the whole job: the fields of `GENERAL`. */
  general: Spec;
  isMasterDifferent: boolean;
  masterEnvironment: Environment | undefined;
  masterCompute: Compute | undefined;
  /** Whether the data sources are mounted in the master, too. */
  isMasterMounting: boolean;
}

export function hasMaster(training: Training): boolean {
  return training.architecture === "Distributed" && training.framework !== "JAX" && !isWithoutMaster(training);
}

/** Master and workers. A single pod, the master, comes only from a copied workload. */
export function configurations(training: Training): Training["configuration"][] {
  if (training.architecture === "Standard") return [];
  if (training.configuration === "Master only") return ["Workers & master", ...(MASTERLESS.includes(training.framework) ? (["Workers only"] as const) : []), "Master only"];
  return MASTERLESS.includes(training.framework) ? ["Workers & master", "Workers only"] : [];
}

function isWithoutMaster(training: Training): boolean {
  return MASTERLESS.includes(training.framework) && training.configuration === "Workers only";
}

interface GeneralField extends FormField {
  fits?: (training: Training) => boolean;
}

const isElastic = (training: Training): boolean => training.architecture === "Distributed" && training.framework === "PyTorch";
const isDistributed = (training: Training): boolean => training.architecture === "Distributed";
const seconds = (path: string, title: string, placeholder: string): GeneralField => ({ path, title, type: "number", min: 0, placeholder });
const TOGETHER = [["", "anywhere"], ["Preferred", "together, if possible"], ["Required", "together, or not at all"]] as const;
/** Settings of the whole job. */
export const GENERAL: GeneralField[] = [
  { path: "minReplicas", title: "Elastic: at least so many pods", type: "number", min: 1, max: 10_000, placeholder: "not elastic", fits: isElastic },
  { path: "maxReplicas", title: "Elastic: at most so many pods", type: "number", min: 1, max: 10_000, placeholder: "not elastic", fits: isElastic },
  { path: "slotsPerWorker", title: "Processes of each worker", type: "number", min: 1, placeholder: "1", fits: (training) => isDistributed(training) && training.framework === "MPI" },
  { path: "nodePools", title: "Node pool", type: "words", placeholder: "the project's" },
  { path: "nodeType", title: "Node type", type: "text", placeholder: "any" },
  { path: "podAffinity.type", title: "Pods in the topology", type: "choice", options: TOGETHER },
  { path: "podAffinity.key", title: "Together by the nodes' label", type: "text", placeholder: "example.com/rack", only: ["podAffinity.type", ["Preferred", "Required"]] },
  { path: "nodeAffinityRequired", title: "Only nodes with these labels", type: "lines", placeholder: "label=value, or label, or !label, one a line", read: readAffinity, write: writeAffinity },
  { path: "tolerations", title: "Taints of nodes that it tolerates", type: "lines", placeholder: "key=value:NoSchedule, or key, one a line", read: readTolerations, write: writeTolerations },
  { path: "preemptibility", title: "Preemption", type: "choice", options: [["", "by its priority"], ["preemptible", "preemptible"], ["non-preemptible", "non-preemptible"]] },
  { path: "backoffLimit", title: "Failures until the job fails", type: "number", min: 0, max: 100, placeholder: "6" },
  seconds("terminationGracePeriodSeconds", "Grace period, in seconds", "30"),
  seconds("autoDeletionTimeAfterCompletionSeconds", "Deleted so many seconds after its end", "never"),
  { path: "cleanPodPolicy", title: "Pods that are deleted when the job ends", type: "choice", options: [["", "the framework's default"], ["Running", "those that run"], ["All", "all"], ["None", "none"]], fits: isDistributed },
  { path: "labels", title: "Labels", type: "pairs" },
  { path: "annotations", title: "Annotations", type: "pairs" },
];

const MOST_GRACE_S = 300; // as in Run:ai's form: a pod that does not end holds its GPUs for so long

/** The error in the grace period, worded as the server's. The server accepts more, so a copied value may stay. */
export function graceProblem({ general }: Training, copied: Partial<Training>): string {
  const asked = general["terminationGracePeriodSeconds"];
  if (typeof asked !== "number" || asked <= MOST_GRACE_S || asked === copied.general?.["terminationGracePeriodSeconds"]) return "";
  return `terminationGracePeriodSeconds: must be no more than ${MOST_GRACE_S}, but is ${asked}. For more, submit with --termination-grace-period.`;
}

/** The field of the request that holds it. */
function topOf({ path }: FormField): string {
  return path.split(".")[0] ?? path;
}

export function generalFields(training: Training): GeneralField[] {
  return GENERAL.filter((field) => field.fits?.(training) ?? true);
}

function generalSpec(training: Training): Spec {
  const names = generalFields(training).map(topOf);
  return Object.fromEntries(Object.entries(training.general).filter(([name]) => names.includes(name)));
}

/** The address to submit to, and the body. */
export function submission(training: Training): { path: string; body: Record<string, unknown> } {
  const head = { name: training.name, projectId: training.projectId, clusterId: training.clusterId };
  const priority = training.priority ? { priorityClass: training.priority } : {};
  const pod = { ...podSpec(training.environment, training.compute), ...generalSpec(training), ...priority };
  const sources = training.sources.map(({ id, kind }) => ({ id, kind }));
  const assets = sources.length ? { assets: { datasources: sources } } : {};
  if (training.architecture === "Standard") return { path: training.type === "Workspace" ? "workloads/workspaces" : "workloads/trainings", body: { ...head, spec: pod, ...assets } };
  const spec = {
    ...pod,
    distributedFramework: training.framework,
    ...(training.configuration === "Master only" ? { noWorkers: true } : { numWorkers: training.workers }),
    ...(isWithoutMaster(training) ? { noMaster: true } : {}),
  };
  const master =
    hasMaster(training) && training.isMasterDifferent
      ? { masterSpec: { ...podSpec(training.masterEnvironment ?? training.environment, training.masterCompute ?? training.compute), ...(training.isMasterMounting ? {} : { storage: {} }) } }
      : {};
  return { path: "workloads/distributed", body: { ...head, spec, ...master, ...assets } };
}

const SECURITY = ["uidGidSource", "runAsUid", "runAsGid", "supplementalGroups", "capabilities", "seccompProfileType", "runAsNonRoot", "readOnlyRootFilesystem", "allowPrivilegeEscalation", "hostIpc", "hostNetwork"];

/** An environment's spec as a request's: there, security fields are below `security`. */
export function requestSpec(environment: Spec): Spec {
  const spec: Spec = {};
  const security: Spec = {};
  for (const [field, value] of Object.entries(environment)) {
    if (value === "" || value === null || value === undefined) continue;
    if (SECURITY.includes(field)) security[field] = value;
    else spec[field] = value;
  }
  if (Object.keys(security).length) spec["security"] = { ...(spec["security"] as Spec | undefined), ...security };
  return spec;
}

/** The pod spec of a request. */
function podSpec(environment: Environment | undefined, compute: Compute | undefined): Spec {
  return { ...requestSpec(environment?.spec ?? {}), ...(compute ? { compute: compute.spec } : {}) };
}

/** The equivalent command; "" where the form has fields without a flag. */
export function commandOf(training: Training): string {
  const { environment, compute } = training;
  if (!environment || !compute) return "";
  const { spec, masterSpec } = submission(training).body as { spec: Spec; masterSpec?: Spec };
  const own = flagsOf(spec);
  const master = masterSpec ? masterFlags(podSpec(environment, compute), masterSpec, training.sources.map(({ kind }) => kind)) : [];
  if (!own || !master) return "";
  const sources = training.sources.flatMap(({ name }) => ["--datasource", name]);
  return withProgram(["runai", workloadType(training).toLowerCase(), "submit", training.name, "-p", training.projectName, ...own, ...sources, ...master], environment.spec);
}

/** Run:ai's name for the type of workload. */
export function workloadType(training: Training): "Distributed" | Training["type"] {
  return training.architecture === "Distributed" ? "Distributed" : training.type;
}

/** The form's type for a workload or template of such a type. */
export function ofType(type: string): Pick<Training, "type" | "architecture"> {
  return { type: type === "Workspace" ? "Workspace" : "Training", architecture: type === "Distributed" ? "Distributed" : "Standard" };
}

/** The form's contents for a copied workload. Fields that the form does not show stay in the environment. */
export function copyOf(name: string, spec: Spec, masterSpec: Spec | null): Partial<Training> {
  const { compute, numWorkers, distributedFramework, noMaster, noWorkers, priorityClass, ...others } = spec;
  const isGeneral = (name: string): boolean => GENERAL.some((field) => topOf(field) === name);
  const environment = Object.fromEntries(Object.entries(others).filter(([path]) => !isGeneral(path)));
  const framework = String(distributedFramework ?? "PyTorch").toLowerCase();
  const master = masterSpec
    ? (({ compute: own, storage, ...others }) => ((rest) => ({
        isMasterDifferent: true,
        isMasterMounting: !isNothing(storage),
        masterEnvironment: asEnvironment(`as-${name}-master`, rest),
        ...(own ? { masterCompute: { name: `as-${name}-master`, spec: own as Compute["spec"] } } : {}),
      }))({ ...others, ...(storage && !isNothing(storage) ? { storage } : {}) }))(masterSpec)
    : {};
  return {
    ...(Object.keys(environment).length ? { environment: asEnvironment(`as-${name}`, environment) } : {}),
    ...(compute ? { compute: { name: `as-${name}`, spec: compute as Compute["spec"] } } : {}),
    general: Object.fromEntries(Object.entries(others).filter(([path]) => isGeneral(path))),
    workers: Number(numWorkers ?? 1),
    framework: FRAMEWORKS.find(([key]) => key.toLowerCase() === framework)?.[0] ?? "PyTorch",
    configuration: noMaster ? "Workers only" : noWorkers ? "Master only" : "Workers & master",
    priority: String(priorityClass ?? ""),
    ...master,
  };
}

/** The spec of a master that mounts nothing. */
function isNothing(storage: unknown): boolean {
  return typeof storage === "object" && storage !== null && !Object.keys(storage).length;
}

function asEnvironment(name: string, spec: Spec): Environment {
  const { command, args, ...rest } = spec;
  const text = (value: unknown): string => (Array.isArray(value) ? value.map((word) => shellWord(String(word))).join(" ") : String(value ?? ""));
  return { name, spec: { ...rest, command: text(command), args: text(args) } };
}

export function aboutEnvironment({ spec }: Environment): string {
  return [spec.image, spec.command, spec.args].filter(Boolean).join(" ");
}

export function aboutCompute({ spec }: Compute): string {
  const devices = spec.gpuDevicesRequest ?? 0;
  const part = spec.gpuPortionRequest ? `${Math.round(spec.gpuPortionRequest * 100)} % of ` : spec.gpuMemoryRequest ? `${spec.gpuMemoryRequest} of ` : "";
  const gpus = devices > 1 ? `${part ? `${part}each of ` : ""}${devices} GPUs` : devices ? `${part || "1 "}${part ? "a " : ""}GPU` : "no GPU";
  return [gpus, spec.cpuCoreRequest !== undefined ? `${spec.cpuCoreRequest} cores` : "", spec.cpuMemoryRequest ? `${spec.cpuMemoryRequest} memory` : ""].filter(Boolean).join(", ");
}
