// Two or more workloads side by side: what was asked for, field by field.

import { COLUMNS } from "./columns";
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
const LEFT_OUT = ["name", "id"];

/** What became of them, and what they are, of the table's own columns. */
export function outcomeFields(rows: Row[], now: number): Field[] {
  const columns = COLUMNS.filter((column) => !LEFT_OUT.includes(column.key));
  const ordered = [...OUTCOME.flatMap((key) => columns.filter((column) => column.key === key)), ...columns.filter((column) => !OUTCOME.includes(column.key))];
  return ordered.map((column) => field(column.title, rows.map((row) => column.text(row, now)))).filter((one) => one.values.some(Boolean));
}

/** What was asked for, by the path of each field. */
export function askedFields(asked: Asked[]): Field[] {
  const flat = asked.map((one) => {
    const found = new Map<string, string>();
    flatten("spec", one.spec, found);
    flatten("masterSpec", one.masterSpec, found);
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
