// A new training: what the form holds, as the body of a request and as a command.

import { shellWord } from "./format";
import type { FormField, Spec } from "./forms";

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
const MASTERLESS = ["PyTorch", "TF", "XGBoost"]; // those that can do without a master

export const HOST: Environment = { name: "this-machine", spec: { image: "rowlock.dev/host", command: "" } };

/** A data source of the project, which the server writes out. */
export interface Source {
  id: string;
  kind: string;
  name: string;
}

export interface Training {
  projectId: string;
  projectName: string;
  clusterId: string;
  architecture: "Standard" | "Distributed";
  framework: string;
  configuration: "Workers & master" | "Workers only" | "Master only";
  name: string;
  environment: Environment | undefined;
  compute: Compute | undefined;
  workers: number;
  priority: string;
  sources: Source[];
  /** What concerns the whole job: the fields of `GENERAL`. */
  general: Spec;
  isMasterDifferent: boolean;
  masterEnvironment: Environment | undefined;
  masterCompute: Compute | undefined;
}

export function hasMaster(training: Training): boolean {
  return training.architecture === "Distributed" && training.framework !== "JAX" && !isWithoutMaster(training);
}

/** How the pods are made up; a single pod, which is the master, comes from a copy alone: what has workers has another form. */
export function configurations(training: Training): Training["configuration"][] {
  if (training.architecture === "Standard") return [];
  if (training.configuration === "Master only") return ["Workers & master", ...(MASTERLESS.includes(training.framework) ? (["Workers only"] as const) : []), "Master only"];
  return MASTERLESS.includes(training.framework) ? ["Workers & master", "Workers only"] : [];
}

function isWithoutMaster(training: Training): boolean {
  return MASTERLESS.includes(training.framework) && training.configuration === "Workers only";
}

interface GeneralField extends FormField {
  flag: string;
  fits?: (training: Training) => boolean;
}

const isElastic = (training: Training): boolean => training.architecture === "Distributed" && training.framework === "PyTorch";
const isDistributed = (training: Training): boolean => training.architecture === "Distributed";
const seconds = (path: string, title: string, flag: string, placeholder: string): GeneralField => ({ path, title, type: "number", min: 0, placeholder, flag });
/** What concerns the whole job, with the flag that says the same. */
export const GENERAL: GeneralField[] = [
  { path: "minReplicas", title: "Elastic: at least so many pods", type: "number", min: 1, max: 10_000, placeholder: "not elastic", flag: "--min-replicas", fits: isElastic },
  { path: "maxReplicas", title: "Elastic: at most so many pods", type: "number", min: 1, max: 10_000, placeholder: "not elastic", flag: "--max-replicas", fits: isElastic },
  { path: "slotsPerWorker", title: "Processes of each worker", type: "number", min: 1, placeholder: "1", flag: "--slots-per-worker", fits: (training) => isDistributed(training) && training.framework === "MPI" },
  { path: "nodePools", title: "Node pool", type: "words", placeholder: "the project's", flag: "--node-pools" },
  { path: "preemptibility", title: "Preemption", type: "choice", options: [["", "by its priority"], ["preemptible", "preemptible"], ["non-preemptible", "non-preemptible"]], flag: "--preemptibility" },
  { path: "backoffLimit", title: "Failures until the job fails", type: "number", min: 0, max: 100, placeholder: "6", flag: "--backoff-limit" },
  seconds("terminationGracePeriodSeconds", "Grace period, in seconds", "--termination-grace-period", "30"),
  seconds("autoDeletionTimeAfterCompletionSeconds", "Deleted so many seconds after its end", "--auto-deletion-time-after-completion", "never"),
  { path: "cleanPodPolicy", title: "Pods that are deleted when the job ends", type: "choice", options: [["", "the framework's default"], ["Running", "those that run"], ["All", "all"], ["None", "none"]], flag: "--clean-pod-policy", fits: isDistributed },
  { path: "labels", title: "Labels", type: "pairs", flag: "--label" },
  { path: "annotations", title: "Annotations", type: "pairs", flag: "--annotation" },
];

export function generalFields(training: Training): GeneralField[] {
  return GENERAL.filter((field) => field.fits?.(training) ?? true);
}

function generalSpec(training: Training): Spec {
  const paths = generalFields(training).map((field) => field.path);
  return Object.fromEntries(Object.entries(training.general).filter(([path]) => paths.includes(path)));
}

/** The address to submit to, and the body. */
export function submission(training: Training): { path: string; body: Record<string, unknown> } {
  const head = { name: training.name, projectId: training.projectId, clusterId: training.clusterId };
  const priority = training.priority ? { priorityClass: training.priority } : {};
  const pod = { ...podSpec(training.environment, training.compute), ...generalSpec(training), ...priority };
  const sources = training.sources.map(({ id, kind }) => ({ id, kind }));
  const assets = sources.length ? { assets: { datasources: sources } } : {};
  if (training.architecture === "Standard") return { path: "workloads/trainings", body: { ...head, spec: pod, ...assets } };
  const spec = {
    ...pod,
    distributedFramework: training.framework,
    ...(training.configuration === "Master only" ? { noWorkers: true } : { numWorkers: training.workers }),
    ...(isWithoutMaster(training) ? { noMaster: true } : {}),
  };
  const master =
    hasMaster(training) && training.isMasterDifferent
      ? { masterSpec: podSpec(training.masterEnvironment ?? training.environment, training.masterCompute ?? training.compute) }
      : {};
  return { path: "workloads/distributed", body: { ...head, spec, ...master, ...assets } };
}

const SECURITY = ["uidGidSource", "runAsUid", "runAsGid", "supplementalGroups", "capabilities", "seccompProfileType", "runAsNonRoot", "readOnlyRootFilesystem", "allowPrivilegeEscalation", "hostIpc", "hostNetwork"];

/** A request's spec of pods. An environment says flat what a request has below `security`. */
function podSpec(environment: Environment | undefined, compute: Compute | undefined): Spec {
  const spec: Spec = {};
  const security: Spec = {};
  for (const [field, value] of Object.entries(environment?.spec ?? {})) {
    if (value === "" || value === null || value === undefined) continue;
    if (SECURITY.includes(field)) security[field] = value;
    else spec[field] = value;
  }
  if (Object.keys(security).length) spec["security"] = { ...(spec["security"] as Spec | undefined), ...security };
  return { ...spec, ...(compute ? { compute: compute.spec } : {}) };
}

const FLAGS = new Map([
  ["imagePullPolicy", "--image-pull-policy"], ["workingDir", "--working-dir"], ["security.runAsUid", "--run-as-uid"], ["security.runAsGid", "--run-as-gid"],
  ["compute.gpuDevicesRequest", "--gpu-devices-request"], ["compute.gpuRequestType", "--gpu-request-type"], ["compute.gpuPortionRequest", "--gpu-portion-request"],
  ["compute.gpuMemoryRequest", "--gpu-memory-request"], ["compute.cpuCoreRequest", "--cpu-core-request"], ["compute.cpuMemoryRequest", "--cpu-memory-request"],
  ["compute.cpuCoreLimit", "--cpu-core-limit"], ["compute.cpuMemoryLimit", "--cpu-memory-limit"], ["compute.largeShmRequest", "--large-shm"],
  ["noMaster", "--no-master"], ["priorityClass", "--priority"], ...GENERAL.map((field) => [field.path, field.flag] as const),
]);
const OTHERWISE = ["image", "command", "args", "environmentVariables", "distributedFramework", "numWorkers"]; // said in words of their own

/** The same as a command; "" where the form holds more than it could say. */
export function commandOf(training: Training): string {
  const { environment, compute } = training;
  if (!environment || !compute || (hasMaster(training) && training.isMasterDifferent)) return "";
  const spec = submission(training).body["spec"] as Spec;
  const flat = Object.entries(spec).flatMap(([field, value]) => (["compute", "security"].includes(field) ? Object.entries(value as Spec).map(([inner, one]) => [`${field}.${inner}`, one] as const) : [[field, value] as const]));
  const variables = environment.spec.environmentVariables ?? [];
  if (flat.some(([path]) => !FLAGS.has(path) && !OTHERWISE.includes(path)) || variables.some((one) => one.value === undefined)) return "";
  const words =
    training.architecture === "Standard"
      ? ["runai", "training", "submit", training.name]
      : ["runai", "distributed", "submit", training.name, "--framework", training.framework, "--workers", String(training.workers)];
  words.push("-p", training.projectName, "-i", String(spec["image"] ?? ""));
  words.push(...flat.flatMap(([path, value]) => flagWords(FLAGS.get(path), path, value)));
  for (const source of training.sources) words.push("--datasource", source.name);
  for (const { name, value } of variables) words.push("-e", `${name}=${value}`);
  const line = words.map(shellWord).join(" ");
  const { command = "", args = "" } = environment.spec;
  if (command) return `${line} --command -- ${[command, args].filter(Boolean).join(" ")}`;
  return args ? `${line} -- ${args}` : line;
}

function flagWords(flag: string | undefined, path: string, value: unknown): string[] {
  if (!flag || value === false) return [];
  if (value === true) return [flag];
  const unit = path.endsWith("Seconds") ? "s" : "";
  const values = (Array.isArray(value) ? value : [value]) as (string | number | Variable)[];
  return values.flatMap((one) => [flag, typeof one === "object" ? `${one.name}=${one.value ?? ""}` : `${one}${unit}`]);
}

/** What the form shows of a workload that is copied. All that it has no field for stays with the environment. */
export function copyOf(name: string, spec: Spec, masterSpec: Spec | null): Partial<Training> {
  const { compute, numWorkers, distributedFramework, noMaster, noWorkers, priorityClass, ...others } = spec;
  const isGeneral = (path: string): boolean => GENERAL.some((field) => field.path === path);
  const environment = Object.fromEntries(Object.entries(others).filter(([path]) => !isGeneral(path)));
  const framework = String(distributedFramework ?? "PyTorch").toLowerCase();
  const master = masterSpec
    ? (({ compute: own, ...rest }) => ({
        isMasterDifferent: true,
        masterEnvironment: asEnvironment(`as-${name}-master`, rest),
        ...(own ? { masterCompute: { name: `as-${name}-master`, spec: own as Compute["spec"] } } : {}),
      }))(masterSpec)
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
