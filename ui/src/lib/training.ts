// A new training: what the form holds, as the body of a request and as a command.

import { shellWord } from "./format";

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
export const MASTERLESS = ["PyTorch", "TF", "XGBoost"]; // those that can do without a master

export const HOST: Environment = { name: "this-machine", spec: { image: "rowlock.dev/host", command: "" } };

export interface Training {
  projectId: string;
  projectName: string;
  clusterId: string;
  architecture: "Standard" | "Distributed";
  framework: string;
  configuration: "Workers & master" | "Workers only";
  name: string;
  environment: Environment | undefined;
  compute: Compute | undefined;
  workers: number;
  priority: string;
  isMasterDifferent: boolean;
  masterEnvironment: Environment | undefined;
  masterCompute: Compute | undefined;
}

export function hasMaster(training: Training): boolean {
  return training.architecture === "Distributed" && training.framework !== "JAX" && !isWithoutMaster(training);
}

function isWithoutMaster(training: Training): boolean {
  return MASTERLESS.includes(training.framework) && training.configuration === "Workers only";
}

/** The address to submit to, and the body. */
export function submission(training: Training): { path: string; body: Record<string, unknown> } {
  const head = { name: training.name, projectId: training.projectId, clusterId: training.clusterId };
  const pod = { ...podSpec(training.environment, training.compute), ...(training.priority ? { priorityClass: training.priority } : {}) };
  if (training.architecture === "Standard") return { path: "workloads/trainings", body: { ...head, spec: pod } };
  const spec = {
    ...pod,
    distributedFramework: training.framework,
    numWorkers: training.workers,
    ...(isWithoutMaster(training) ? { noMaster: true } : {}),
  };
  const master =
    hasMaster(training) && training.isMasterDifferent
      ? { masterSpec: podSpec(training.masterEnvironment ?? training.environment, training.masterCompute ?? training.compute) }
      : {};
  return { path: "workloads/distributed", body: { ...head, spec, ...master } };
}

function podSpec(environment: Environment | undefined, compute: Compute | undefined): Record<string, unknown> {
  const filled = Object.entries(environment?.spec ?? {}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return { ...Object.fromEntries(filled), ...(compute ? { compute: compute.spec } : {}) };
}

/** "NAME=VALUE" lines as variables. */
export function parseVariables(text: string): Variable[] {
  const lines = text.split("\n").map((line) => line.trim());
  return lines.filter(Boolean).map((line) => {
    const sign = line.indexOf("=");
    return sign < 0 ? { name: line, value: "" } : { name: line.slice(0, sign), value: line.slice(sign + 1) };
  });
}

const ENVIRONMENT_FIELDS = ["image", "command", "args", "environmentVariables"];
const COMPUTE_FLAGS: [string, string][] = [
  ["gpuDevicesRequest", "--gpu-devices-request"],
  ["gpuRequestType", "--gpu-request-type"],
  ["gpuPortionRequest", "--gpu-portion-request"],
  ["cpuCoreRequest", "--cpu-core-request"],
  ["cpuMemoryRequest", "--cpu-memory-request"],
];

/** The same as a command; "" where the form holds more than it could say. */
export function commandOf(training: Training): string {
  const { environment, compute } = training;
  if (!environment || !compute || (hasMaster(training) && training.isMasterDifferent)) return "";
  const asked = podSpec(environment, undefined);
  const variables = environment.spec.environmentVariables ?? [];
  const isMore =
    Object.keys(asked).some((field) => !ENVIRONMENT_FIELDS.includes(field)) ||
    Object.keys(compute.spec).some((field) => !COMPUTE_FLAGS.some(([known]) => known === field)) ||
    variables.some((one) => one.value === undefined);
  if (isMore) return "";
  const words =
    training.architecture === "Standard"
      ? ["runai", "training", "submit", training.name]
      : ["runai", "distributed", "submit", training.name, "--framework", training.framework, "--workers", String(training.workers)];
  words.push("-p", training.projectName, "-i", String(asked["image"] ?? ""));
  if (training.architecture === "Distributed" && isWithoutMaster(training)) words.push("--no-master");
  for (const [field, flag] of COMPUTE_FLAGS) if (compute.spec[field] !== undefined) words.push(flag, String(compute.spec[field]));
  if (training.priority) words.push("--priority", training.priority);
  for (const { name, value } of variables) words.push("-e", `${name}=${value}`);
  const line = words.map(shellWord).join(" ");
  const { command = "", args = "" } = environment.spec;
  if (command) return `${line} --command -- ${[command, args].filter(Boolean).join(" ")}`;
  return args ? `${line} -- ${args}` : line;
}

type Spec = Record<string, unknown>;

/** What the form shows of a workload that is copied. All that it has no field for stays with the environment. */
export function copyOf(name: string, spec: Spec, masterSpec: Spec | null): Partial<Training> {
  const { compute, numWorkers, distributedFramework, noMaster, priorityClass, ...environment } = spec;
  const framework = String(distributedFramework ?? "PyTorch").toLowerCase();
  const master = masterSpec
    ? (({ compute: own, ...rest }) => ({
        isMasterDifferent: true,
        masterEnvironment: asEnvironment(`as-${name}-master`, rest),
        ...(own ? { masterCompute: { name: `as-${name}-master`, spec: own as Compute["spec"] } } : {}),
      }))(masterSpec)
    : {};
  return {
    environment: asEnvironment(`as-${name}`, environment),
    compute: { name: `as-${name}`, spec: (compute ?? {}) as Compute["spec"] },
    workers: Number(numWorkers ?? 1),
    framework: FRAMEWORKS.find(([key]) => key.toLowerCase() === framework)?.[0] ?? "PyTorch",
    configuration: noMaster ? "Workers only" : "Workers & master",
    priority: String(priorityClass ?? ""),
    ...master,
  };
}

function asEnvironment(name: string, spec: Spec): Environment {
  const { command, args, ...rest } = spec;
  const text = (value: unknown): string => (Array.isArray(value) ? value.map((word) => shellWord(String(word))).join(" ") : String(value ?? ""));
  return { name, spec: { ...rest, command: text(command), args: text(args) } };
}
