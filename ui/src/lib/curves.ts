// Curves from what a run printed: `step=10 loss=0.31`, JSON lines, `Epoch 3/10 loss: 0.3`. The rules are those of `rowlock plot`.

import { call, request } from "./api";
import type { Chart } from "./figures";

const AXES = ["step", "global_step", "train_step", "iteration", "iter", "epoch"];
const NOT_METRICS = new Set([...AXES, "rank", "local_rank", "world_size", "pid", "port", "seed", "total", "max_steps"]);
const PAIR = /(?<![\w./-])([A-Za-z_][\w./-]{0,63})['"]?\s{0,3}[=:]\s{0,3}['"]?([-+]?(?:\d{1,40}\.?\d{0,40}(?:e[-+]?\d{1,4})?|\.\d{1,40}|nan|inf(?:inity)?))(?![\w:%]|\.\w)/gi;
const COUNTED = /\b(step|iter|iteration|epoch)\s{1,3}#?\[?(\d{1,18})\b(?!\.)/gi;
const MAX_LINE = 4096;
const MAX_POINTS = 4000; // of a curve: a chart has less pixels
const MAX_CURVES = 64;
const MAX_BYTES = 64 * 1024 * 1024; // of one attempt's log
const MAX_ATTEMPTS = 20;

export interface RunAttempt {
  attempt: number;
  startedAt: string;
  endedAt: string | null;
  restart: number;
  logBytes: number | null;
}

export interface RunRank {
  rank: string;
  pod: string;
  pods: { nodeName: string | null; status: string; exitCode: number | null; restarts: number }[];
  attempts: RunAttempt[];
}

export interface RunHeader {
  id: string;
  name: string;
  projectName: string;
  kind: string;
  createdAt: string;
  finishedAt: string | null;
  deletedAt: string | null;
  phase: string;
  attempts: number;
  verdict: string;
  durationSeconds: number | null;
}

export interface Run extends RunHeader {
  phases: { at: string; phase: string; message: string }[];
  ranks: RunRank[];
  ran: { commandLine: string; command: string[]; image: string; workingDir: string; replicas: Record<string, number>; resources: unknown; code: Record<string, unknown> | null; environment: string[] };
  manifest: unknown;
}

interface Curve {
  axis: string;
  points: [number, number][];
  stride: number;
  seen: number;
}

export type Curves = Map<string, Curve>;

function toNumber(text: string): number {
  const word = text.toLowerCase();
  if (word.includes("nan")) return NaN;
  if (word.includes("inf")) return word.startsWith("-") ? -Infinity : Infinity;
  return Number(text);
}

/** The axis, how far, and the metrics of one line. */
export function parseLine(line: string): { axis: string; count: number; metrics: Map<string, number> } | undefined {
  const text = line.slice(0, MAX_LINE);
  const pairs = new Map<string, number>();
  for (const [, name, value] of text.matchAll(PAIR)) if (name && value && !pairs.has(name)) pairs.set(name, toNumber(value));
  const counts = new Map([...pairs].map(([name, value]) => [name.toLowerCase(), value] as const).filter(([name]) => AXES.includes(name)));
  for (const [, name, value] of text.matchAll(COUNTED)) if (name && !counts.has(name.toLowerCase())) counts.set(name.toLowerCase(), Number(value));
  const axis = AXES.find((one) => Math.abs(counts.get(one) ?? NaN) < 1e18);
  const metrics = new Map([...pairs].filter(([name]) => !NOT_METRICS.has(name.toLowerCase())));
  return axis !== undefined && metrics.size ? { axis, count: counts.get(axis) ?? 0, metrics } : undefined;
}

/** Takes the lines of one attempt after another. An attempt that goes on from a checkpoint takes the place of what it does again. */
export class CurveReader {
  readonly curves: Curves = new Map();
  #last = new Map<string, number>();
  #base = new Map<string, number>();

  beginAttempt(): void {
    this.#last.clear();
    this.#base.clear();
  }

  push(line: string): void {
    const found = parseLine(line);
    if (!found) return;
    const { axis, count, metrics } = found;
    const last = this.#last.get(axis);
    if (last === undefined) {
      for (const curve of this.curves.values()) if (curve.axis === axis) curve.points = curve.points.filter(([x]) => x < count);
    } else if (count < (last - (this.#base.get(axis) ?? 0)) / 2) this.#base.set(axis, last);
    const x = count + (this.#base.get(axis) ?? 0);
    this.#last.set(axis, x);
    for (const [name, value] of metrics) {
      if (!this.curves.has(name) && this.curves.size >= MAX_CURVES) continue;
      const curve = this.curves.get(name) ?? { axis, points: [], stride: 1, seen: 0 };
      this.curves.set(name, curve);
      if (curve.axis === axis) add(curve, x, value);
    }
  }
}

function add(curve: Curve, x: number, value: number): void {
  curve.seen += 1;
  if (curve.stride > 1 && curve.seen % curve.stride) return;
  curve.points.push([x, value]);
  if (curve.points.length > MAX_POINTS) {
    curve.points = curve.points.filter((_, index) => index % 2 === 0);
    curve.stride *= 2;
  }
}

/** What the first rank that began printed, in all its attempts. Throws ApiError. */
export async function readCurves(id: string, signal: AbortSignal): Promise<{ run: Run; curves: Curves }> {
  const run = await call<Run>("GET", `runs/${encodeURIComponent(id)}`);
  const rank = run.ranks.find((one) => one.attempts.length);
  const reader = new CurveReader();
  for (const { attempt } of rank?.attempts.slice(-MAX_ATTEMPTS) ?? []) {
    reader.beginAttempt();
    const path = `workloads/${encodeURIComponent(run.id)}/pods/${encodeURIComponent(rank?.pod ?? "")}/logs?attempt=${attempt}&limitBytes=${MAX_BYTES}`;
    await eachLine(await request(path, { signal }), (line) => reader.push(line));
  }
  return { run, curves: reader.curves };
}

async function eachLine(answer: Response, take: (line: string) => void): Promise<void> {
  const reader = (answer.body as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = (lines.pop() ?? "").slice(0, MAX_LINE);
    lines.forEach(take);
  }
  if (rest) take(rest);
}

/** A chart for each metric and axis, a line for each run that printed it. */
export function curveCharts(read: { run: Run; curves: Curves }[]): (Chart & { axis: string })[] {
  const charts = new Map<string, { name: string; axis: string; lines: { title: string; points: Map<number, number> }[] }>();
  const names = read.map(({ run }) => run.name);
  for (const { run, curves } of read) {
    const title = names.filter((name) => name === run.name).length > 1 ? `${run.name} (${run.id.slice(0, 8)})` : run.name;
    for (const [name, curve] of curves) {
      const key = `${name}\n${curve.axis}`;
      const chart = charts.get(key) ?? { name, axis: curve.axis, lines: [] };
      charts.set(key, chart);
      chart.lines.push({ title, points: new Map(curve.points) });
    }
  }
  return [...charts.values()].map(({ name, axis, lines }) => {
    const times = [...new Set(lines.flatMap((line) => [...line.points.keys()]))].sort((a, b) => a - b);
    const values = (points: Map<number, number>): (number | null)[] => times.map((x) => (Number.isFinite(points.get(x)) ? (points.get(x) ?? null) : null));
    return { title: name, axis, unit: "", times, lines: lines.map(({ title, points }) => ({ title, values: values(points) })) };
  });
}

/** The rank whose program ended first with a code other than 0; those that were killed after it are not to blame. */
export function firstFailure(run: Run): { rank: string; pod: string; code: number } | undefined {
  const culprit = /\brank (\d+)\b/.exec(run.verdict)?.[0];
  const failing = run.ranks.flatMap(({ rank, pod, pods }) => pods.filter((one) => one.exitCode).map((one) => ({ rank, pod, code: one.exitCode ?? 0 })));
  return failing.find((one) => one.rank === culprit) ?? (failing.length === 1 ? failing[0] : undefined);
}

/** Whose logs and figures there are: those of the pods, and those of ranks whose pods are gone; undefined `pods` are not known yet, and nobody of them is gone. */
export function rankSources(pods: { name: string; rank: string; status: string }[] | undefined, run: Run | undefined): { pod: string; title: string }[] {
  const ranks = run?.ranks ?? [];
  const order = new Map(ranks.map(({ pod }, index) => [pod, index]));
  const present = new Set(pods?.map(({ name }) => name));
  const gone = ranks.filter(({ pod, attempts }) => attempts.length && !present.has(pod)).map((one) => ({ name: one.pod, rank: one.rank, status: one.pods.at(-1)?.status ?? "", isGone: pods !== undefined }));
  return [...(pods ?? []).map((one) => ({ ...one, isGone: Boolean(run?.deletedAt) })), ...gone]
    .sort((a, b) => (order.get(a.name) ?? Infinity) - (order.get(b.name) ?? Infinity) || 0)
    .map(({ name, rank, status, isGone }) => {
      const notes = [status === "Error" || status === "Failed" ? "failed" : "", isGone ? "gone" : ""].filter(Boolean).join(", ");
      return { pod: name, title: `${rank} · ${name}${notes ? ` (${notes})` : ""}` };
    });
}
