// One stream of workloads for all pages of a browser: it keeps the rows, resumes after a broken connection, and reports
// when it cannot.

import { EventParser } from "./events";
import type { Row, StreamMessage, StreamState } from "./types";

const SILENCE_MS = 40_000; // the server sends a comment every 15 s
const LOOK_MS = 1000; // between two checks of the silence
const FIRST_DELAY_MS = 250;
const LAST_DELAY_MS = 5_000;
const PATIENCE_MS = 600; // a stream that the server ends regularly is back before a message could be read

type Tell = (message: StreamMessage) => void;

export class WorkloadStream {
  readonly rows = new Map<string, Row>();
  state: StreamState = "connecting";
  key = ""; // the key of the session that it follows
  #url = "";
  #lastEvent = "";
  #delay = FIRST_DELAY_MS;
  #abort: AbortController | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #notice: ReturnType<typeof setTimeout> | undefined;
  #heard = new Moment(); // of the last event or comment, or the start of an attempt
  #isConnected = false; // or connecting
  readonly #tell: Tell;

  constructor(tell: Tell) {
    this.#tell = tell;
    setInterval(() => this.look(), LOOK_MS);
  }

  /** Follow with this key; does nothing if it does so already. */
  follow(key: string, url: string): void {
    if (key === this.key && url === this.#url && this.state !== "signed-out") return;
    this.stop();
    if (key !== this.key) this.#lastEvent = "";
    this.key = key;
    this.#url = url;
    this.#setState("connecting");
    void this.#connect();
  }

  /** A connection that is silent for too long is broken, though no error came: after sleep, or behind a tunnel. */
  look(): void {
    if (this.#isConnected && this.#heard.age() > SILENCE_MS) this.#abort?.abort();
  }

  /** Try now: the page is visible again, or the network is back. */
  retry(): void {
    this.look();
    if (this.key && this.state === "reconnecting") {
      clearTimeout(this.#retry);
      this.#delay = FIRST_DELAY_MS;
      void this.#connect();
    }
  }

  stop(): void {
    clearTimeout(this.#retry);
    clearTimeout(this.#notice);
    this.#notice = undefined;
    this.#abort?.abort();
  }

  async #connect(): Promise<void> {
    this.#abort?.abort();
    const abort = new AbortController();
    this.#abort = abort;
    this.#heard = new Moment();
    this.#isConnected = true;
    try {
      const headers: Record<string, string> = { "X-Rowlock-Key": this.key };
      if (this.#lastEvent) headers["Last-Event-ID"] = this.#lastEvent;
      const answer = await fetch(this.#url, { headers, signal: abort.signal, cache: "no-store" });
      if (abort !== this.#abort) return; // the answer belongs to a session that is no longer followed
      if (answer.status === 401 || answer.status === 403) {
        this.#lastEvent = "";
        this.rows.clear();
        this.#tell({ type: "reset", rows: [] });
        return this.#setState("signed-out");
      }
      if (!answer.ok || !answer.body) throw new Error(`HTTP ${answer.status}`);
      await this.#read(answer.body.getReader(), abort);
    } catch {
      // Reconnect after any error, unless another connection has taken over (`abort` differs).
    }
    if (abort !== this.#abort) return;
    this.#isConnected = false;
    if (this.state !== "signed-out") this.#comeBack();
  }

  async #read(reader: ReadableStreamDefaultReader<Uint8Array>, abort: AbortController): Promise<void> {
    const parser = new EventParser();
    const decoder = new TextDecoder();
    for (;;) {
      const { done, value } = await reader.read();
      if (done || abort !== this.#abort) return;
      this.#heard = new Moment();
      for (const event of parser.push(decoder.decode(value, { stream: true }))) this.#take(event.name, event.data, event.id);
    }
  }

  #take(name: string, data: string, id: string): void {
    const value: unknown = JSON.parse(data);
    if (name === "reset") {
      this.#lastEvent = ""; // a connection that breaks before all rows have arrived cannot be resumed
      this.rows.clear();
      this.#tell({ type: "reset", rows: [] });
    } else if (name === "rows") {
      const rows = value as Row[];
      for (const row of rows) this.rows.set(row.id, row);
      this.#tell({ type: "rows", rows });
    } else if (name === "gone") {
      const ids = value as string[];
      for (const gone of ids) this.rows.delete(gone);
      this.#tell({ type: "gone", ids });
    } else if (name === "ready") {
      this.#lastEvent = id;
      this.#delay = FIRST_DELAY_MS;
      clearTimeout(this.#notice);
      this.#notice = undefined;
      this.#tell({ type: "ready", time: (value as { time: number }).time });
      this.#setState("live");
    }
  }

  #comeBack(): void {
    this.#notice ??= setTimeout(() => this.#setState("reconnecting"), PATIENCE_MS);
    this.#retry = setTimeout(() => void this.#connect(), this.#delay * (0.75 + Math.random() / 2));
    this.#delay = Math.min(this.#delay * 2, LAST_DELAY_MS);
  }

  #setState(state: StreamState): void {
    if (state !== this.state) {
      this.state = state;
      this.#tell({ type: "state", state, key: this.key });
    }
  }
}

/** A point in time by two clocks: the wall clock goes on while the machine sleeps, the monotonic one cannot be set. */
class Moment {
  readonly #wall = Date.now();
  readonly #steady = performance.now();

  age(): number {
    return Math.max(Date.now() - this.#wall, performance.now() - this.#steady);
  }
}
