// Tolerations and affinity as lines, written as kubectl writes taints and selectors. JSON is accepted too, and shown for what lines cannot express.

type Toleration = { key?: string; operator?: string; value?: string; effect?: string; [other: string]: unknown };
type Expression = { key?: string; operator?: string; values?: string[]; [other: string]: unknown };

const EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute", "Any"];

function lines(text: string): string[] {
  return text.split("\n").map((line) => line.trim()).filter(Boolean);
}

/** JSON of a list or an object; undefined for anything else. The server reports incomplete JSON. */
function jsonOf(text: string): unknown {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** `key=value:NoSchedule`, `key:NoExecute` or `key`, one a line. */
export function readTolerations(text: string): unknown {
  return (
    jsonOf(text) ??
    lines(text).map((line): Toleration => {
      const [, before = "", effect] = /^(.*?)(?::([^:=]*))?$/.exec(line) ?? [];
      const [key = "", value] = before.split(/=(.*)/s);
      return { key, operator: value === undefined ? "Exists" : "Equal", ...(value === undefined ? {} : { value }), ...(effect ? { effect } : {}) };
    })
  );
}

export function writeTolerations(value: unknown): string {
  const all = Array.isArray(value) ? (value as Toleration[]) : [];
  const isPlain = all.every(({ key, operator = "Equal", value: held, effect, ...others }) => key && !Object.keys(others).length && (operator === "Equal") === (held !== undefined) && (!effect || EFFECTS.includes(effect)));
  if (!isPlain || !Array.isArray(value)) return JSON.stringify(value);
  return all.map(({ key, value: held, effect }) => `${key}${held === undefined ? "" : `=${held}`}${effect ? `:${effect}` : ""}`).join("\n");
}

/** `label=a,b`, `label!=a`, `label` or `!label`, one a line; a node must match all of them. */
export function readAffinity(text: string): unknown {
  return jsonOf(text) ?? { nodeSelectorTerms: [{ matchExpressions: lines(text).map(readExpression) }] };
}

function readExpression(line: string): Expression {
  const [, key = "", sign, values = ""] = /^(.*?)\s*(!=|==?)\s*(.*)$/.exec(line) ?? [];
  if (sign) return { key, operator: sign === "!=" ? "NotIn" : "In", values: values.split(",").map((one) => one.trim()) };
  return line.startsWith("!") ? { key: line.slice(1).trim(), operator: "DoesNotExist" } : { key: line, operator: "Exists" };
}

export function writeAffinity(value: unknown): string {
  const terms = (value as { nodeSelectorTerms?: { matchExpressions?: Expression[] }[] }).nodeSelectorTerms ?? [];
  const written = terms.length === 1 ? (terms[0]?.matchExpressions ?? []).map(writeExpression) : [undefined];
  return written.every((line) => line !== undefined) ? written.join("\n") : JSON.stringify(value);
}

function writeExpression({ key, operator, values = [], ...others }: Expression): string | undefined {
  if (!key || Object.keys(others).length) return undefined;
  if (operator === "In" || operator === "NotIn") return `${key}${operator === "In" ? "=" : "!="}${values.join(",")}`;
  return operator === "Exists" ? key : operator === "DoesNotExist" ? `!${key}` : undefined;
}
