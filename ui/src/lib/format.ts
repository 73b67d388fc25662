// How values are written: ages in one unit, times local and in UTC, counts.

/** "12s", "5m", "3h", "2d": how long ago, or how long it took. */
export function span(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)}h`;
  return `${Math.floor(whole / 86_400)}d`;
}

export function age(time: string | null, now: number): string {
  return time ? span((now - Date.parse(time)) / 1000) : "";
}

export function localTime(time: string | null): string {
  return time ? new Date(time).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" }) : "";
}

/** For a title: the moment in UTC. */
export function utcTime(time: string | null): string {
  return time ? `${new Date(time).toISOString().replace(/\.000Z$/, "Z")} (UTC)` : "";
}

export function number(value: number): string {
  return Number.isInteger(value) ? String(value) : value.toFixed(2);
}

/** A word of a command line, quoted where a shell would take it apart. */
export function shellWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
