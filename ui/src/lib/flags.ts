// A spec as flags of the `runai` CLI V2.

import { shellWord } from "./format";
import type { Spec } from "./forms";

const FLAGS = new Map([
  ["image", "-i"], ["imagePullPolicy", "--image-pull-policy"], ["workingDir", "--working-dir"], ["createHomeDir", "--create-home-dir"], ["stdin", "--stdin"],
  ["tty", "--tty"], ["restartPolicy", "--restart-policy"], ["distributedFramework", "--framework"], ["numWorkers", "--workers"], ["noMaster", "--no-master"],
  ["minReplicas", "--min-replicas"], ["maxReplicas", "--max-replicas"], ["slotsPerWorker", "--slots-per-worker"], ["cleanPodPolicy", "--clean-pod-policy"],
  ["priorityClass", "--priority"], ["preemptibility", "--preemptibility"], ["nodePools", "--node-pools"], ["nodeType", "--node-type"],
  ["backoffLimit", "--backoff-limit"], ["terminationGracePeriodSeconds", "--termination-grace-period"],
  ["autoDeletionTimeAfterCompletionSeconds", "--auto-deletion-time-after-completion"], ["labels", "--label"], ["annotations", "--annotation"],
  ["security.runAsUid", "--run-as-uid"], ["security.runAsGid", "--run-as-gid"], ["security.supplementalGroups", "--supplemental-groups"],
  ["security.uidGidSource", "--user-group-source"], ["security.runAsNonRoot", "--run-as-non-root"], ["security.capabilities", "--capability"],
  ["security.allowPrivilegeEscalation", "--allow-privilege-escalation"], ["security.seccompProfileType", "--seccomp-profile"],
  ["security.hostIpc", "--host-ipc"], ["security.hostNetwork", "--host-network"],
  ["compute.gpuDevicesRequest", "--gpu-devices-request"], ["compute.gpuRequestType", "--gpu-request-type"], ["compute.gpuPortionRequest", "--gpu-portion-request"],
  ["compute.gpuMemoryRequest", "--gpu-memory-request"], ["compute.cpuCoreRequest", "--cpu-core-request"], ["compute.cpuMemoryRequest", "--cpu-memory-request"],
  ["compute.cpuCoreLimit", "--cpu-core-limit"], ["compute.cpuMemoryLimit", "--cpu-memory-limit"], ["compute.largeShmRequest", "--large-shm"],
  ["compute.extendedResources", "--extended-resource"], ["environmentVariables", "-e"],
]);
const NESTED = ["compute", "security"];
const PROGRAM = ["command", "args"]; // these come after `--`
const OF_MASTER = ["cpuCoreRequest", "cpuCoreLimit", "cpuMemoryRequest", "cpuMemoryLimit", "extendedResources"];

function leaves(spec: Spec): [string, unknown][] {
  return Object.entries(spec).flatMap(([field, value]): [string, unknown][] =>
    NESTED.includes(field) ? Object.entries((value ?? {}) as Spec).map(([inner, one]): [string, unknown] => [`${field}.${inner}`, one]) : [[field, value]],
  );
}

/** The flags of everything but the program; undefined where a field has no flag. */
export function flagsOf(spec: Spec): string[] | undefined {
  const words: string[] = [];
  for (const [path, value] of leaves(spec)) {
    if (PROGRAM.includes(path) || value === undefined || value === null || value === "") continue;
    const own = wordsOf(path, value);
    if (!own) return undefined;
    words.push(...own);
  }
  return words;
}

function wordsOf(path: string, value: unknown): string[] | undefined {
  if (path === "podAffinity") {
    const { type, key } = value as Spec;
    return key ? [type === "Required" ? "--required-pod-topology-key" : "--preferred-pod-topology-key", String(key)] : [];
  }
  if (path === "tolerations") return (value as Spec[]).flatMap((one) => ["--toleration", Object.entries(one).map(([field, text]) => `${field}=${String(text)}`).join(",")]);
  const flag = FLAGS.get(path);
  if (!flag) return undefined;
  if (typeof value === "boolean") return value ? [flag] : [];
  const texts = (Array.isArray(value) ? value : [value]).map((one) => textOf(path, one));
  return texts.every((text) => text !== undefined) ? texts.flatMap((text) => [flag, text]) : undefined;
}

/** One value in the flag's syntax; undefined for a variable whose value comes from elsewhere. */
function textOf(path: string, value: unknown): string | undefined {
  if (typeof value !== "object" || value === null) return `${String(value)}${path.endsWith("Seconds") ? "s" : ""}`;
  const { name, value: held, resource, quantity } = value as Spec;
  if (resource !== undefined) return `${String(resource)}=${String(quantity)}`;
  return typeof name === "string" && typeof held === "string" ? `${name}=${held}` : undefined;
}

/** The flags of a different master; undefined where a difference has no flag. */
export function masterFlags(workers: Spec, { storage, ...master }: Spec, sources: string[]): string[] | undefined {
  const differs = (field: string, a: Spec = workers, b: Spec = master): boolean => JSON.stringify(a[field] ?? "") !== JSON.stringify(b[field] ?? "");
  const words = programFlags(workers, master);
  if (!words || (storage && workers["storage"])) return undefined;
  if (storage && sources.length) {
    if (sources.some((kind) => kind !== "pvc")) return undefined; // only claims have a flag
    words.push("--master-no-pvcs");
  }
  for (const field of new Set([...Object.keys(workers), ...Object.keys(master)])) {
    if (PROGRAM.includes(field) || !differs(field)) continue;
    const own = field === "compute" ? computeFlags((workers["compute"] ?? {}) as Spec, (master["compute"] ?? {}) as Spec) : fieldFlags(field, workers, master);
    if (!own) return undefined;
    words.push(...own);
  }
  return words;

  function computeFlags(theirs: Spec, its: Spec): string[] | undefined {
    const changed = [...new Set([...Object.keys(theirs), ...Object.keys(its)])].filter((field) => differs(field, theirs, its));
    const others = changed.filter((field) => !field.startsWith("gpu"));
    if (its["gpuMemoryRequest"] || others.some((field) => !OF_MASTER.includes(field) || its[field] === undefined)) return undefined;
    const gpus = others.length === changed.length ? [] : ["--master-gpu-devices-request", String(its["gpuDevicesRequest"] ?? 0), ...(its["gpuPortionRequest"] ? ["--master-gpu-portion-request", String(its["gpuPortionRequest"])] : [])];
    return [...gpus, ...others.flatMap((field) => wordsOf(`compute.${field}`, its[field]) ?? []).map((word) => word.replace(/^--/, "--master-"))];
  }
}

/** A master with its own command does not inherit the workers' arguments. */
function programFlags(workers: Spec, master: Spec): string[] | undefined {
  const [hasCommand, hasArgs] = PROGRAM.map((field) => String(workers[field] ?? "") !== String(master[field] ?? ""));
  if (!hasCommand && !hasArgs) return [];
  if ((hasCommand && !master["command"]) || (!hasCommand && !master["args"])) return undefined;
  return [...(hasCommand ? ["--master-command", String(master["command"])] : []), ...(master["args"] ? ["--master-args", String(master["args"])] : [])];
}

function fieldFlags(field: string, workers: Spec, master: Spec): string[] | undefined {
  if (field !== "environmentVariables") return undefined;
  const theirs = (workers[field] ?? []) as { name: string; value?: string }[];
  const its = (master[field] ?? []) as { name: string; value?: string }[];
  if (its.some((one) => one.value === undefined)) return undefined;
  const gone = theirs.filter(({ name }) => !its.some((one) => one.name === name)).map(({ name }) => `${name}=-`);
  const changed = its.filter(({ name, value }) => !theirs.some((one) => one.name === name && one.value === value)).map(({ name, value }) => `${name}=${value}`);
  return [...changed, ...gone].flatMap((text) => ["--master-environment-variable", text]);
}

/** A command line, followed by what the pods run. */
export function withProgram(words: string[], { command = "", args = "" }: { command?: string; args?: string }): string {
  const line = words.map(shellWord).join(" ");
  if (command) return `${line} --command -- ${[command, args].filter(Boolean).join(" ")}`;
  return args ? `${line} -- ${args}` : line;
}
