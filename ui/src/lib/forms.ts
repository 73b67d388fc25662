// Forms described by tables: title of a field, its path in the spec, and its syntax.

import { shellWord } from "./format";

export type Spec = Record<string, unknown>;

export interface FormField {
  /** The path in the spec, with dots. */
  path: string;
  title: string;
  type: "text" | "secret" | "lines" | "number" | "switch" | "choice" | "words" | "pairs";
  /** Values and their titles; "" omits the field. */
  options?: readonly (readonly [string, string])[];
  isRequired?: boolean;
  /** The initial value; a switch with this value is omitted. */
  first?: unknown;
  placeholder?: string;
  min?: number;
  max?: number;
  step?: number | "any";
  /** For pairs: the title of the name; "name" by default. */
  nameField?: "name" | "key" | "resource";
  /** For pairs: the title of the value; "value" by default. */
  valueField?: "value" | "quantity";
  /** For a choice: one of the project's credentials of these kinds. */
  credentials?: readonly string[];
  /** For lines: converts the text to the value and back. */
  read?: (text: string) => unknown;
  write?: (value: unknown) => string;
  /** Shown only while another field has this value, or one of these. */
  only?: readonly [path: string, value: unknown];
}

function valueAt(spec: Spec, path: string): unknown {
  return path.split(".").reduce<unknown>((inner, name) => (typeof inner === "object" && inner !== null ? (inner as Spec)[name] : undefined), spec);
}

/** A copy with another value; undefined removes the field and parents that become empty. */
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
  const value = valueAt(spec, path) || ""; // false means the same as absent
  return Array.isArray(wanted) ? wanted.includes(value) : value === wanted;
}

/** The initial spec of a form. */
export function firstSpec(fields: FormField[]): Spec {
  return fields.reduce((spec, field) => (field.first === undefined || field.type === "switch" || !isShown(field, spec) ? spec : withValueAt(spec, field.path, field.first)), {} as Spec);
}

/** The value as the text of an input. */
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

/** The spec with a typed value; fields that are no longer shown are removed. */
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

/** Variables whose value comes from elsewhere, such as a Secret: a form does not show them and leaves them unchanged. */
function referred(value: unknown, { valueField = "value" }: FormField): Pair[] {
  return (Array.isArray(value) ? (value as Pair[]) : []).filter((one) => typeof one[valueField] !== "string");
}
