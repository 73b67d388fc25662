// A new training: what the form holds, as the body of a request and as a command.

import { shellWord } from "./format";

export interface Environment {
  name: string;
  image: string;
  command: string;
  args: string;
  variables: string;
}

export interface Compute {
  name: string;
  gpuDevices: number;
  gpuPortion: number; // of each device; 1 is a whole one
  cpuCores: number;
  cpuMemory: string;
}

export const FRAMEWORKS = [
  ["PyTorch", "PyTorch"],
  ["TF", "TensorFlow"],
  ["MPI", "MPI"],
  ["XGBoost", "XGBoost"],
  ["JAX", "JAX"],
] as const;
export const MASTERLESS = ["PyTorch", "TF", "XGBoost"]; // those that can do without a master

export const HOST: Environment = { name: "this-machine", image: "rowlock.dev/host", command: "", args: "", variables: "" };
export const COMPUTES: Compute[] = [
  { name: "small-fraction", gpuDevices: 1, gpuPortion: 0.1, cpuCores: 0.1, cpuMemory: "100M" },
  { name: "half-gpu", gpuDevices: 1, gpuPortion: 0.5, cpuCores: 0.1, cpuMemory: "100M" },
  { name: "one-gpu", gpuDevices: 1, gpuPortion: 1, cpuCores: 0.1, cpuMemory: "100M" },
  { name: "cpu-only", gpuDevices: 0, gpuPortion: 1, cpuCores: 0.1, cpuMemory: "100M" },
];

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
  const spec: Record<string, unknown> = {};
  if (environment) {
    spec["image"] = environment.image.trim();
    if (environment.command.trim()) spec["command"] = environment.command.trim();
    if (environment.args.trim()) spec["args"] = environment.args.trim();
    const variables = variablesOf(environment);
    if (variables.length) spec["environmentVariables"] = variables;
  }
  if (compute) {
    spec["compute"] = {
      cpuCoreRequest: compute.cpuCores,
      cpuMemoryRequest: compute.cpuMemory,
      gpuDevicesRequest: compute.gpuDevices,
      ...(isShare(compute) ? { gpuRequestType: "portion", gpuPortionRequest: compute.gpuPortion } : {}),
    };
  }
  return spec;
}

function isShare(compute: Compute): boolean {
  return compute.gpuDevices > 0 && compute.gpuPortion < 1;
}

function variablesOf(environment: Environment): { name: string; value: string }[] {
  const lines = environment.variables.split("\n").map((line) => line.trim());
  return lines.filter(Boolean).map((line) => {
    const sign = line.indexOf("=");
    return sign < 0 ? { name: line, value: "" } : { name: line.slice(0, sign), value: line.slice(sign + 1) };
  });
}

/** The same as a command; "" where no command says it: a master of its own. */
export function commandOf(training: Training): string {
  const { environment, compute } = training;
  if (!environment || !compute || (hasMaster(training) && training.isMasterDifferent)) return "";
  const words =
    training.architecture === "Standard"
      ? ["runai", "training", "submit", training.name]
      : ["runai", "distributed", "submit", training.name, "--framework", training.framework, "--workers", String(training.workers)];
  words.push("-p", training.projectName, "-i", environment.image.trim());
  if (training.architecture === "Distributed" && isWithoutMaster(training)) words.push("--no-master");
  words.push("--gpu-devices-request", String(compute.gpuDevices));
  if (isShare(compute)) words.push("--gpu-request-type", "portion", "--gpu-portion-request", String(compute.gpuPortion));
  words.push("--cpu-core-request", String(compute.cpuCores), "--cpu-memory-request", compute.cpuMemory);
  if (training.priority) words.push("--priority", training.priority);
  for (const { name, value } of variablesOf(environment)) words.push("-e", `${name}=${value}`);
  const line = words.map(shellWord).join(" ");
  const command = environment.command.trim();
  const args = environment.args.trim();
  if (command) return `${line} --command -- ${[command, args].filter(Boolean).join(" ")}`;
  return args ? `${line} -- ${args}` : line;
}

interface Spec {
  image?: string;
  command?: string | string[];
  args?: string | string[];
  numWorkers?: number;
  distributedFramework?: string;
  noMaster?: boolean;
  priorityClass?: string;
  environmentVariables?: { name: string; value?: string }[];
  compute?: { gpuDevicesRequest?: number; gpuPortionRequest?: number; cpuCoreRequest?: number; cpuMemoryRequest?: string };
}

/** What the form shows of a workload that is copied. What it has no field for is left out. */
export function copyOf(name: string, spec: Spec): Partial<Training> {
  const text = (value: string | string[] | undefined): string => (Array.isArray(value) ? value.map(shellWord).join(" ") : (value ?? ""));
  const variables = (spec.environmentVariables ?? []).filter((one) => one.value !== undefined);
  const environment = {
    name: `as-${name}`,
    image: spec.image ?? "",
    command: text(spec.command),
    args: text(spec.args),
    variables: variables.map((one) => `${one.name}=${one.value}`).join("\n"),
  };
  const asked = spec.compute ?? {};
  const devices = asked.gpuDevicesRequest ?? 0;
  const compute = {
    name: `as-${name}`,
    gpuDevices: devices < 1 && devices > 0 ? 1 : devices,
    gpuPortion: asked.gpuPortionRequest ?? (devices > 0 && devices < 1 ? devices : 1),
    cpuCores: asked.cpuCoreRequest ?? 0.1,
    cpuMemory: asked.cpuMemoryRequest ?? "100M",
  };
  return {
    environment,
    compute,
    workers: spec.numWorkers ?? 1,
    framework: FRAMEWORKS.find(([key]) => key.toLowerCase() === spec.distributedFramework?.toLowerCase())?.[0] ?? "PyTorch",
    configuration: spec.noMaster ? "Workers only" : "Workers & master",
    priority: spec.priorityClass ?? "",
  };
}
