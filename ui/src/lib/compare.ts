// Two or more workloads side by side: their requests, field by field.

import type { Phase, WorkloadKind } from "./answers";
import { COLUMNS } from "./columns";
import type { Run } from "./curves";
import type { Row } from "./types";

export interface Field {
  title: string;
  values: string[];
  isDifferent: boolean;
}

export interface Asked {
  spec: unknown;
  masterSpec: unknown;
}

const OUTCOME = ["phase", "why", "runtime", "createdAt", "completedAt", "pods", "gpuAllocation", "nodes"];
const ALWAYS_OTHERS = ["createdAt", "completedAt"]; // these always differ, so they are not marked
const LEFT_OUT = ["name", "id"];

/** Result and description, from the table's own columns. */
export function outcomeFields(rows: Row[], now: number): Field[] {
  const columns = COLUMNS.filter((column) => !LEFT_OUT.includes(column.key));
  const ordered = [...OUTCOME.flatMap((key) => columns.filter((column) => column.key === key)), ...columns.filter((column) => !OUTCOME.includes(column.key))];
  const fields = ordered.map((column) => {
    const values = rows.map((row) => column.text(row, now));
    const isDifferent = !ALWAYS_OTHERS.includes(column.key) && new Set(values.map((value, index) => value.replaceAll(rows[index]?.name || " ", ""))).size > 1;
    return { title: column.title, values, isDifferent };
  });
  return fields.filter((one) => one.values.some(Boolean));
}

/** The request, by the path of each field. */
export function askedFields(asked: Asked[]): Field[] {
  const flat = asked.map((one) => {
    const found = new Map<string, string>();
    flatten("spec", evenSpec(one.spec), found);
    flatten("masterSpec", evenSpec(one.masterSpec), found);
    return found;
  });
  const paths = [...new Set(flat.flatMap((one) => [...one.keys()]))].sort();
  return paths.map((path) => field(path, flat.map((one) => one.get(path) ?? "")));
}

function field(title: string, values: string[]): Field {
  return { title, values, isDifferent: new Set(values).size > 1 };
}

function flatten(path: string, value: unknown, found: Map<string, string>): void {
  if (value === null || value === undefined) return;
  if (Array.isArray(value)) {
    value.forEach((one: unknown, index) => {
      const { name, ...rest } = typeof one === "object" && one !== null ? (one as Record<string, unknown>) : {};
      if (typeof name !== "string") flatten(`${path}[${index}]`, one, found);
      else flatten(`${path}[${name}]`, Object.keys(rest).join() === "value" ? rest["value"] : rest, found);
    });
  } else if (typeof value === "object") {
    for (const [key, one] of Object.entries(value)) flatten(`${path}.${key}`, one, found);
  } else {
    found.set(path, String(value));
  }
}

const REQUEST = "rowlock.dev/request";

/** The request of a deleted workload, else the spec that ran. */
export function askedOfRun(run: Run): Asked {
  const { command, image, replicas, resources, workingDir } = run.ran;
  const text = (run.manifest as { metadata?: { annotations?: Record<string, string> } } | null)?.metadata?.annotations?.[REQUEST];
  try {
    const { spec, masterSpec = null } = JSON.parse(text ?? "{}") as Partial<Asked>;
    if (spec) return { spec, masterSpec };
  } catch {
    // Users can write invalid JSON into this annotation: use the spec that ran.
  }
  return { spec: { command, image, replicas, resources, workingDir }, masterSpec: null };
}

/** A spec with uniform types: a command is one text in the API and a list in the request; groups likewise. */
function evenSpec(spec: unknown): unknown {
  if (typeof spec !== "object" || spec === null) return spec;
  const { command, args, security, ...rest } = spec as Record<string, unknown>;
  const groups = (security as Record<string, unknown> | null | undefined)?.["supplementalGroups"];
  return {
    ...rest,
    command: typeof command === "string" ? splitWords(command) : command,
    args: typeof args === "string" ? splitWords(args) : args,
    security: Array.isArray(groups) ? { ...(security as object), supplementalGroups: groups.join(",") } : security,
  };
}

/** The words of a command line, split as a shell does. */
export function splitWords(text: string): string[] {
  const words: string[] = [];
  let word: string | undefined;
  for (const [piece, single, double, escaped, plain] of text.matchAll(/'([^']*)'|"((?:[^"\\]|\\[^])*)"|\\([^])|([^\s'"\\]+)|\s+/g)) {
    if (/^\s/.test(piece)) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else {
      word = (word ?? "") + (single ?? double?.replaceAll(/\\(["\\$`])/g, "$1") ?? escaped ?? plain ?? "");
    }
  }
  return word === undefined ? words : [...words, word];
}

/** A deleted workload as a row. */
export function rowOfRun(run: Run): Row {
  const ranAt = run.phases.find((step) => step.phase === "Running")?.at;
  return {
    id: run.id, name: run.name, type: "" as WorkloadKind, distributedFramework: run.kind.replace(/Job$/, ""), category: "", phase: run.phase as Phase, phaseReason: null,
    phaseUpdatedAt: run.finishedAt ?? "", why: run.verdict, projectName: run.projectName, departmentName: "", namespace: "", submittedBy: "", priorityClassName: "",
    preemptible: false, createdAt: run.createdAt, completedAt: run.finishedAt ?? run.deletedAt, startedAt: ranAt ?? null, ...(ranAt ? { ranAt } : {}),
    runningPods: 0, requestedPods: run.ranks.length, minPods: null, maxPods: null, failedPods: 0, images: [run.ran.image], nodePool: "",
    nodes: [...new Set(run.ranks.flatMap((rank) => rank.pods.map((pod) => pod.nodeName ?? "")))].filter(Boolean), gpuRequest: 0, gpuAllocation: 0,
    gpuMemoryAllocation: "", kind: run.kind, clusterId: "", canStop: false,
  };
}
