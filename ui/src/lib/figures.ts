// Figures of a workload over time, grouped into charts.

import { number } from "./format";

export interface Measurement {
  type: string;
  labels: Record<string, string>;
  values: { value: string; timestamp: string }[];
}

export interface Line {
  title: string;
  values: (number | null)[];
}

export interface Chart {
  title: string;
  unit: Unit;
  times: number[];
  lines: Line[];
}

/** "whole": counted in whole units, though parts are possible, as with shared GPUs. */
type Unit = "" | "whole" | "bytes" | "%" | "bytes/s";

const BYTE_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);
const ROUND_STEPS = Array.from({ length: 31 }, (_, index) => [1, 2, 2.5, 5].map((step) => Number(`${step}e${index - 16}`))).flat();
const WHOLE_STEPS = [1, 2, 4, 8, 16, 32, 64, ...[100, 1000, 10_000, 100_000].flatMap((power) => [1, 2, 4, 8].map((step) => step * power))]; // typical numbers of GPUs; each is at most twice the one before, or a chart might have no tick but 0

/** The possible distances between the ticks of an axis. */
export function stepsOf({ unit, lines }: Chart): number[] {
  if (unit.startsWith("bytes")) return BYTE_STEPS;
  if (unit !== "whole") return ROUND_STEPS;
  const isWhole = lines.every((line) => line.values.every((value) => value === null || Number.isInteger(value)));
  const most = Math.max(...lines.flatMap((line) => line.values.map((value) => value ?? 0)));
  return isWhole || most > 2 ? WHOLE_STEPS : ROUND_STEPS; // below two GPUs the ticks are fractions
}

/** Charts: title, unit, and the types of the lines with their names. */
type Groups = [string, Unit, [string, string][]][];

export const GROUPS: Groups = [
  ["GPU utilization", "%", [["GPU_UTILIZATION", "used"]]],
  ["GPUs", "whole", [["GPU_ALLOCATION", "allocated"]]],
  ["GPU memory", "bytes", [["GPU_MEMORY_USAGE_BYTES", "used"], ["GPU_MEMORY_REQUEST_BYTES", "requested"]]],
  ["CPU cores", "", [["CPU_USAGE_CORES", "used"], ["CPU_REQUEST_CORES", "requested"], ["CPU_LIMIT_CORES", "limit"]]],
  ["CPU memory", "bytes", [["CPU_MEMORY_USAGE_BYTES", "used"], ["CPU_MEMORY_REQUEST_BYTES", "requested"], ["CPU_MEMORY_LIMIT_BYTES", "limit"]]],
  ["NVLink bandwidth", "bytes/s", [["NVLINK_BANDWIDTH_TOTAL", "total"]]],
  ["Pods", "whole", [["RUNNING_POD_COUNT", "running"], ["POD_COUNT", "all"]]],
];

/** The charts of one pod, also for each of its GPUs. */
export const POD_GROUPS: Groups = [
  ["GPU utilization", "%", [["GPU_UTILIZATION", "used"], ["GPU_UTILIZATION_PER_GPU", "each GPU"]]],
  ["GPU memory", "bytes", [["GPU_MEMORY_USAGE_BYTES", "used"], ["GPU_MEMORY_USAGE_BYTES_PER_GPU", "each GPU"]]],
  ["CPU cores", "", [["CPU_USAGE_CORES", "used"]]],
  ["CPU memory", "bytes", [["CPU_MEMORY_USAGE_BYTES", "used"]]],
];

export function typesOf(groups: Groups): string[] {
  return groups.flatMap(([, , lines]) => lines.map(([type]) => type));
}

/** The charts of an answer, and the titles of charts without a value. A limit or request that is always 0 is not drawn. */
export function chartsOf(measurements: Measurement[], groups: Groups): { charts: Chart[]; absent: string[] } {
  const charts: Chart[] = [];
  const absent: string[] = [];
  for (const [title, unit, wanted] of groups) {
    const found = wanted.flatMap(([type, word]) =>
      measurements.filter((one) => one.type === type && one.values.length).map((one) => ({ word, one })),
    );
    for (const [type, word] of wanted) {
      if (!found.some(({ one }) => one.type === type)) absent.push(word === "used" && title !== "GPU utilization" ? `${title} in use` : title);
    }
    const shown = found.filter(({ word, one }) => word === "used" || word === "all" || word === "running" || one.values.some(({ value }) => Number(value) > 0));
    if (!shown.length) continue;
    const times = [...new Set(shown.flatMap(({ one }) => one.values.map(({ timestamp }) => Date.parse(timestamp) / 1000)))].sort((a, b) => a - b);
    const lines = shown.map(({ word, one }) => {
      const byTime = new Map(one.values.map(({ value, timestamp }) => [Date.parse(timestamp) / 1000, Number(value)]));
      const label = Object.values(one.labels).join(" ");
      return { title: label ? `${word} ${label}` : word, values: times.map((time) => byTime.get(time) ?? null) };
    });
    charts.push({ title, unit, times, lines });
  }
  return { charts, absent: [...new Set(absent)] };
}

const FRESH_S = 30; // a value this old still counts as current: samples of one moment do not arrive together
const FRESH_STEPS = 3; // or this many samples, where they are further apart

/** The value of a line at a time: the last one before it, unless that is too old. */
export function knownValue({ times }: Chart, { values }: Line, index: number): number | null {
  const at = times[index] ?? 0;
  const step = ((times.at(-1) ?? 0) - (times[0] ?? 0)) / Math.max(1, times.length - 1);
  for (let before = index; before >= 0 && at - (times[before] ?? 0) <= Math.max(FRESH_S, FRESH_STEPS * step); before -= 1) {
    const value = values[before];
    if (value !== null && value !== undefined) return value;
  }
  return null;
}

export function amount(value: number | null | undefined, unit: Unit): string {
  if (value === null || value === undefined) return "–";
  if (unit === "%") return `${number(value)} %`;
  if (!unit || unit === "whole") return number(value);
  const steps = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = value < 1 ? 0 : Math.min(steps.length - 1, Math.floor(Math.log2(value) / 10));
  const text = value / 1024 ** step;
  return `${text >= 100 || Number.isInteger(text) ? Math.round(text) : text.toFixed(1)} ${steps[step]}${unit === "bytes/s" ? "/s" : ""}`;
}
