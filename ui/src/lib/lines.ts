// The last lines of a growing log, within limits.

export const KEPT_LINES = 20_000;
const MAX_LINE = 4_000;
// eslint-disable-next-line no-control-regex
const CONTROL = /\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007]*\u0007|[\u0000-\u0008\u000b-\u001f\u007f]/g;

/** Splits arriving text into lines. A line that a program overwrote (a progress bar) has its last state. */
export class LineBuffer {
  lines: string[] = [];
  dropped = 0;
  #rest = "";

  push(text: string): void {
    const parts = (this.#rest + text).split("\n");
    this.#rest = boundRest(parts.pop() ?? "");
    for (const part of parts) this.lines.push(cleanLine(part));
    if (this.lines.length > KEPT_LINES * 1.1) {
      const extra = this.lines.length - KEPT_LINES;
      this.dropped += extra;
      this.lines = this.lines.slice(extra);
    }
  }

  /** Whether the last text has no newline yet. */
  finish(): void {
    if (this.#rest) this.lines.push(cleanLine(this.#rest));
    this.#rest = "";
  }
}

/** The present state of an unfinished line (a progress bar), cut to the limit of a line. */
function boundRest(rest: string): string {
  if (rest.length <= 4 * MAX_LINE) return rest;
  const tag = tagOf(rest);
  const last = rest.slice(rest.lastIndexOf("\r") + 1);
  return (last.startsWith(tag) ? "" : tag) + last.slice(0, 2 * MAX_LINE);
}

function tagOf(line: string): string {
  return /^\[[^\]]{1,40}\] /.exec(line)?.[0] ?? "";
}

export function cleanLine(line: string): string {
  const tag = tagOf(line);
  const body = line.slice(tag.length).replace(/\r+$/, "");
  const last = body.slice(body.lastIndexOf("\r") + 1).replace(CONTROL, "");
  return tag + (last.length > MAX_LINE ? `${last.slice(0, MAX_LINE)} … (cut: DOWNLOAD has all of it)` : last);
}
