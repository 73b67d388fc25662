// Charts from curves of runs, which the server reads from the logs, as for `rowlock plot`.

import type { Run as KeptRun } from "./answers";
import { call, request } from "./api";
import type { Chart } from "./figures";

const MAX_POINTS = 4000; // per curve: a chart has fewer pixels

export type { RunHeader } from "./answers";

export interface Run extends KeptRun {
  ran: { commandLine: string; command: string[]; image: string; workingDir: string; replicas: Record<string, number>; resources: unknown; code: Record<string, unknown> | null; environment: string[] };
}

/** Values that JSON lacks come as "NaN", "Infinity", "-Infinity". */
interface Curve {
  metric: string;
  axis: string;
  points: [number, number | string][];
}

export interface CurvesOfRun {
  run: Run;
  curves: Curve[];
}

/** The curves of the rank that began first, in all its attempts. Throws ApiError. */
export async function readCurves(id: string, signal: AbortSignal): Promise<CurvesOfRun> {
  const path = `runs/${encodeURIComponent(id)}`;
  const run = await call<Run>("GET", path);
  const answer = (await (await request(`${path}/curves?points=${MAX_POINTS}`, { signal })).json()) as { curves: Curve[] };
  return { run, curves: answer.curves };
}

/** One chart for each metric and axis, with one line for each run that has it. */
export function curveCharts(read: CurvesOfRun[]): (Chart & { axis: string })[] {
  const charts = new Map<string, { name: string; axis: string; lines: { title: string; points: Map<number, number> }[] }>();
  const names = read.map(({ run }) => run.name);
  for (const { run, curves } of read) {
    const title = names.filter((name) => name === run.name).length > 1 ? `${run.name} (${run.id.slice(0, 8)})` : run.name;
    for (const { metric, axis, points } of curves) {
      const key = `${metric}\n${axis}`;
      const chart = charts.get(key) ?? { name: metric, axis, lines: [] };
      charts.set(key, chart);
      chart.lines.push({ title, points: new Map(points.map(([x, y]) => [x, Number(y)])) });
    }
  }
  return [...charts.values()].map(({ name, axis, lines }) => {
    const times = [...new Set(lines.flatMap((line) => [...line.points.keys()]))].sort((a, b) => a - b);
    const values = (points: Map<number, number>): (number | null)[] => times.map((x) => (Number.isFinite(points.get(x)) ? (points.get(x) ?? null) : null));
    return { title: name, axis, unit: "", times, lines: lines.map(({ title, points }) => ({ title, values: values(points) })) };
  });
}

/** The rank whose program ended first with a code other than 0; later ones were consequences. */
export function firstFailure(run: Run): { rank: string; pod: string; code: number } | undefined {
  const culprit = /\brank (\d+)\b/.exec(run.verdict)?.[0];
  const failing = run.ranks.flatMap(({ rank, pod, pods }) => pods.filter((one) => one.exitCode).map((one) => ({ rank, pod, code: one.exitCode ?? 0 })));
  return failing.find((one) => one.rank === culprit) ?? (failing.length === 1 ? failing[0] : undefined);
}

/** The sources of logs and figures: the pods, and ranks whose pods are gone. Undefined `pods` are not known yet, so none counts as gone. */
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
