// Forms that are tables: what a field is called, where its value stands in a spec, and how it is written there.

import { shellWord } from "./format";

export type Spec = Record<string, unknown>;

export interface FormField {
  /** Where it stands in the spec, with dots. */
  path: string;
  title: string;
  type: "text" | "secret" | "lines" | "number" | "switch" | "choice" | "words" | "pairs";
  /** Values with their titles; "" leaves the field out. */
  options?: readonly (readonly [string, string])[];
  isRequired?: boolean;
  /** What a new one begins with; a switch that says no more than this is left out. */
  first?: unknown;
  placeholder?: string;
  min?: number;
  max?: number;
  step?: number | "any";
  /** Of pairs: what the name of one is called; "name" where nothing is said. */
  nameField?: "name" | "key" | "resource";
  /** And what its value is called; "value" where nothing is said. */
  valueField?: "value" | "quantity";
  /** Of a choice: it is one of the project's credentials, of one of these kinds; none where that may be. */
  credentials?: readonly string[];
  /** Of lines: what they say, as the value, and back. */
  read?: (text: string) => unknown;
  write?: (value: unknown) => string;
  /** It is there only while another field has this value, or one of these. */
  only?: readonly [path: string, value: unknown];
}

function valueAt(spec: Spec, path: string): unknown {
  return path.split(".").reduce<unknown>((inner, name) => (typeof inner === "object" && inner !== null ? (inner as Spec)[name] : undefined), spec);
}

/** A copy with another value; undefined takes it out, and what it leaves empty. */
function withValueAt(spec: Spec, path: string, value: unknown): Spec {
  const [name = "", ...below] = path.split(".");
  const inner = spec[name];
  const next = below.length ? withValueAt(typeof inner === "object" && inner !== null ? (inner as Spec) : {}, below.join("."), value) : value;
  const { [name]: _, ...rest } = spec;
  const isEmpty = next === undefined || (below.length > 0 && !Object.keys(next as Spec).length);
  return isEmpty ? rest : { ...rest, [name]: next };
}

export function isShown(field: FormField, spec: Spec): boolean {
  if (!field.only) return true;
  const [path, wanted] = field.only;
  const value = valueAt(spec, path) || ""; // false says as little as nothing
  return Array.isArray(wanted) ? wanted.includes(value) : value === wanted;
}

/** What a form begins with. */
export function firstSpec(fields: FormField[]): Spec {
  return fields.reduce((spec, field) => (field.first === undefined || field.type === "switch" || !isShown(field, spec) ? spec : withValueAt(spec, field.path, field.first)), {} as Spec);
}

/** The value as it stands in an input. */
export function inputText(field: FormField, spec: Spec): string {
  const value = valueAt(spec, field.path);
  if (field.write) return value === undefined || value === null ? "" : field.write(value);
  if (field.type === "pairs") return plainPairs(value, field).map((one) => `${one[field.nameField ?? "name"] ?? ""}=${one[field.valueField ?? "value"]}`).join("\n");
  if (field.type === "words" && Array.isArray(value)) return value.join(", ");
  if (Array.isArray(value)) return value.map((word) => shellWord(String(word))).join(" "); // a command, as words
  return value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function isOn(field: FormField, spec: Spec): boolean {
  return Boolean(valueAt(spec, field.path) ?? field.first ?? false);
}

/** The spec with what was typed into a field; fields that have no place any more are gone. */
export function withInput(spec: Spec, fields: FormField[], field: FormField, typed: string | boolean): Spec {
  const changed = withValueAt(spec, field.path, valueOf(field, typed, valueAt(spec, field.path)));
  return fields.reduce((left, other) => {
    if (!isShown(other, left)) return withValueAt(left, other.path, undefined);
    const isNew = other.only?.[0] === field.path && other.first !== undefined && valueAt(left, other.path) === undefined;
    return isNew ? withValueAt(left, other.path, other.first) : left;
  }, changed);
}

function valueOf(field: FormField, typed: string | boolean, before: unknown): unknown {
  if (typeof typed === "boolean") return typed === (field.first ?? false) ? undefined : typed;
  const text = field.type === "lines" || field.type === "secret" ? typed : typed.trim();
  if (field.read) return text.trim() ? field.read(text) : undefined;
  if (text === "") return field.type === "pairs" && referred(before, field).length ? referred(before, field) : undefined;
  if (field.type === "number") return Number(text);
  if (field.type === "words") return text.split(/[\s,]+/).filter(Boolean);
  if (field.type === "pairs") return [...referred(before, field), ...parsePairs(text, field)];
  return text;
}

type Pair = Record<string, unknown>;

/** "NAME=VALUE" lines. */
function parsePairs(text: string, { nameField = "name", valueField = "value" }: FormField): Pair[] {
  const lines = text.split("\n").map((line) => line.trim());
  return lines.filter(Boolean).map((line) => {
    const sign = line.indexOf("=");
    return { [nameField]: sign < 0 ? line : line.slice(0, sign), [valueField]: sign < 0 ? "" : line.slice(sign + 1) };
  });
}

function plainPairs(value: unknown, { valueField = "value" }: FormField): Pair[] {
  return (Array.isArray(value) ? (value as Pair[]) : []).filter((one) => typeof one[valueField] === "string");
}

/** Those whose value stands elsewhere, in a Secret perhaps: a form shows none of it, and leaves them alone. */
function referred(value: unknown, { valueField = "value" }: FormField): Pair[] {
  return (Array.isArray(value) ? (value as Pair[]) : []).filter((one) => typeof one[valueField] !== "string");
}
