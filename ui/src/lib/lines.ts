// The last lines of a log that goes on: bounded, whatever a program prints.

export const KEPT_LINES = 20_000;
const MAX_LINE = 4_000;
// eslint-disable-next-line no-control-regex
const CONTROL = /\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007]*\u0007|[\u0000-\u0008\u000b-\u001f\u007f]/g;

/** Text as it arrives, cut into lines. A line that a program wrote over (a progress bar) is shown as it was last. */
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

  /** What came last has no newline. */
  finish(): void {
    if (this.#rest) this.lines.push(cleanLine(this.#rest));
    this.#rest = "";
  }
}

/** Of a line that has not ended: what a progress bar shows now, and no more than is shown of any line. */
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
