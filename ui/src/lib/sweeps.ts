// Sweeps: which metric is looked at first, the best run, and the axes of parallel coordinates.

import type { Sweep, SweepDetailed, SweepRun } from "./answers";
import { mark, number, shellWord } from "./format";

const LOG_RATIO = 20; // positive values that are further apart stand on a logarithmic axis
const MOST_TICKS = 6;
const HIGHER_IS_BETTER = /acc|auc|f1|bleu|score|reward|recall|precision|map\b/i;

export type Order = "min" | "max";

export interface Axis {
  title: string;
  /** A run → its place from 0 (below) to 1 (above); null without a value. */
  place: (run: SweepRun) => number | null;
  ticks: { at: number; text: string }[];
}

/** A loss of a validation, else any loss, else the first metric; "" if there is none. */
export function firstMetric(names: string[]): string {
  const choices = [/^(val|valid|validation|eval|test)[_/.-]?loss$/i, /^loss$/i, /loss/i];
  for (const choice of choices) {
    const found = names.find((name) => choice.test(name));
    if (found) return found;
  }
  return names[0] ?? "";
}

export function usualOrder(metric: string): Order {
  return HIGHER_IS_BETTER.test(metric) ? "max" : "min";
}

export function counts({ runs }: Sweep): string {
  const words = [`${runs.begun} of ${runs.total} runs begun`, `${runs.unfinished} unfinished`, `${runs.completed} completed`, `${runs.failed} failed`];
  const further = [[runs.stopped, "stopped early"], [runs.suspended, "suspended with it"], [runs.deleted, "deleted"]] as const;
  return [...words, ...further.filter(([count]) => count).map(([count, word]) => `${count} ${word}`)].join(", ");
}

/** A value of the metric; "–" without one, NaN where it is no number. */
export function figure(run: SweepRun, which: "best" | "last"): string {
  if (!run.metric) return "–";
  const value = run.metric[which];
  return value === null ? "NaN" : String(Number(value.toPrecision(6)));
}

export function bestRun(sweep: SweepDetailed): SweepRun | undefined {
  return sweep.best === null ? undefined : sweep.entries.find((run) => run.index === sweep.best);
}

export function commandLine(run: SweepRun): string {
  return run.command.map(shellWord).join(" ");
}

/** One axis for each parameter, and the metric as the last one if any run has it. */
export function axesOf(sweep: SweepDetailed, metric: string): Axis[] {
  const axes = sweep.parameters.map((name) => parameterAxis(name, sweep.entries));
  const values = sweep.entries.map((run) => run.metric?.best ?? null).filter((value) => value !== null);
  if (metric && values.length) axes.push({ title: metric, ...numericAxis(values, (run) => run.metric?.best ?? null) });
  return axes;
}

function parameterAxis(name: string, runs: SweepRun[]): Axis {
  const text = (run: SweepRun): string => String(run.parameters[name] ?? "");
  const known = [...new Set(runs.map(text))];
  if (known.every((word) => word.trim() !== "" && Number.isFinite(Number(word)))) return { title: name, ...numericAxis(known.map(Number), (run) => Number(text(run))) };
  const places = new Map(known.sort().map((word, index) => [word, known.length === 1 ? 0.5 : index / (known.length - 1)]));
  const step = Math.ceil(known.length / MOST_TICKS);
  return { title: name, place: (run) => places.get(text(run)) ?? null, ticks: known.filter((_, index) => index % step === 0).map((word) => ({ at: places.get(word) ?? 0, text: word })) };
}

function numericAxis(values: number[], valueOf: (run: SweepRun) => number | null): Omit<Axis, "title"> {
  const sorted = [...new Set(values)].sort((a, b) => a - b);
  const low = sorted[0] ?? 0;
  const high = sorted.at(-1) ?? 0;
  const scale = low > 0 && high / low >= LOG_RATIO ? Math.log : (value: number): number => value;
  const range = scale(high) - scale(low);
  const at = (value: number): number => (range ? (scale(value) - scale(low)) / range : 0.5);
  const step = (high - low) / (MOST_TICKS - 1);
  const spread = sorted.length <= MOST_TICKS || scale === Math.log ? apart(sorted, at) : Array.from({ length: MOST_TICKS }, (_, index) => low + index * step);
  return {
    place: (run) => {
      const value = valueOf(run);
      return value === null ? null : at(value);
    },
    ticks: spread.map((value) => ({ at: at(value), text: spread.length === sorted.length || scale === Math.log ? short(value) : mark(value, step) })),
  };
}

/** Some of these values, the first and the last among them, whose labels do not cover each other. */
function apart(sorted: number[], at: (value: number) => number): number[] {
  const chosen: number[] = [];
  for (const value of sorted) if (!chosen.length || at(value) - at(chosen.at(-1) ?? 0) >= 1 / MOST_TICKS) chosen.push(value);
  const last = sorted.at(-1);
  if (last !== undefined && chosen.at(-1) !== last) chosen.splice(chosen.length > 1 ? -1 : chosen.length, 1, last);
  return chosen;
}

function short(value: number): string {
  return Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(2).replace(/\.?0+e/, "e") : number(value);
}
