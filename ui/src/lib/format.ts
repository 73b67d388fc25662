// Formats values: ages in one unit, times local and in UTC, counts.

import { clock, zone } from "./clock.svelte";

/** An age or a duration: "12s", "5m", "3h", "2d". */
export function span(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)}h`;
  return `${Math.floor(whole / 86_400)}d`;
}

/** A duration that may be short: "0.4s". */
export function took(seconds: number): string {
  return seconds < 10 ? `${seconds.toFixed(1)}s` : span(seconds);
}

export function age(time: string | null, now: number): string {
  return time ? span((now - Date.parse(time)) / 1000) : "";
}

/** By the chosen clock; UTC is marked. */
export function localTime(time: string | null): string {
  return time ? `${new Date(time).toLocaleString([], { dateStyle: "medium", timeStyle: "medium", ...zone() })}${clock.isUtc ? " UTC" : ""}` : "";
}

/** A time in UTC, for titles. */
export function utcTime(time: string | null): string {
  return time ? `${new Date(time).toISOString().replace(/\.000Z$/, "Z")} (UTC)` : "";
}

/** Two decimals; for a small number, such as a learning rate, three significant digits. */
export function number(value: number): string {
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) < 0.1 ? String(Number(value.toPrecision(3))) : value.toFixed(2);
}

/** A tick of an axis whose ticks are `step` apart, with just enough digits. */
export function mark(value: number, step: number): string {
  return String(Number(value.toFixed(Math.min(20, Math.max(0, 1 - Math.floor(Math.log10(step)))))));
}

const UNITS: Record<string, number> = { "": 1, m: 1e-3, k: 1e3, K: 1e3, M: 1e6, G: 1e9, T: 1e12, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 };

/** The bytes of a Kubernetes quantity, "512Mi" or "100M"; 0 for an invalid one. */
export function bytesOf(quantity: string): number {
  const [, amount = "0", unit = ""] = /^([\d.]+)([a-zA-Z]*)$/.exec(quantity) ?? [];
  return Number(amount) * (UNITS[unit] ?? 0);
}

/** Bytes for people: "1.5 GiB". */
export function size(bytes: number): string {
  const steps = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = bytes < 1 ? 0 : Math.min(steps.length - 1, Math.floor(Math.log2(bytes) / 10));
  const amount = bytes / 1024 ** step;
  return `${amount >= 100 || Number.isInteger(amount) ? Math.round(amount) : amount.toFixed(1)} ${steps[step]}`;
}

/** A word of a command line, quoted where a shell would split or expand it. */
export function shellWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
