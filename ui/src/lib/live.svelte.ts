// The workloads as this page knows them, kept by the worker's messages; `version` moves at most once a frame.

import { address, forgetSession, sessionKey } from "./api";
import type { PageMessage, Row, StreamMessage, StreamState } from "./types";

const VIEW_MS = 200; // a table that is sorted anew more often cannot be read
const MANY_ROWS = 2000;
const MANY_VIEW_MS = 500;
const SCROLL_MS = 150; // whoever scrolls wants to see the table move, not change
const PATIENCE_MS = 1500; // but not for ever an old one

export const live = $state({ state: "connecting" as StreamState, version: 0, complete: false, now: Date.now() });
export const rows = new Map<string, Row>();
let renewed: Map<string, Row> | undefined; // a list that begins anew under an open page: until it is whole, the old one stands

let port: { postMessage(message: PageMessage): void } | undefined;
let clockSkew = 0;
let pendingSince = 0;
let scrolledAt = 0;

/** The table is being scrolled: changes wait for a moment. */
export function noteScroll(): void {
  scrolledAt = performance.now();
}

function show(): void {
  const now = performance.now();
  if (now - scrolledAt < SCROLL_MS && now - pendingSince < PATIENCE_MS) {
    setTimeout(show, SCROLL_MS);
    return;
  }
  pendingSince = 0;
  live.version += 1;
}

/** Nothing is known any more: the session is over, or is another one. */
export function forget(): void {
  port?.postMessage({ type: "leave" }); // whoever follows again is told everything
  rows.clear();
  renewed = undefined;
  live.complete = false;
  live.version += 1;
}

/** Begin, or go on with a new session. */
export function follow(): void {
  port ??= openPort();
  port.postMessage({ type: "follow", key: sessionKey(), url: address("ui/workloads") });
}

function openPort(): { postMessage(message: PageMessage): void } {
  const tick = (): void => {
    live.now = Date.now() + clockSkew;
  };
  setInterval(tick, 1000);
  document.addEventListener("visibilitychange", () => {
    tick();
    if (!document.hidden) follow();
  });
  addEventListener("online", follow);
  if (typeof SharedWorker === "undefined") {
    const worker = new Worker(new URL("../worker.ts", import.meta.url), { type: "module", name: "rowlock" });
    worker.onmessage = ({ data }: MessageEvent<StreamMessage>) => take(data);
    return worker;
  }
  const shared = new SharedWorker(new URL("../worker.ts", import.meta.url), { type: "module", name: "rowlock" });
  shared.port.onmessage = ({ data }: MessageEvent<StreamMessage>) => take(data);
  addEventListener("pagehide", () => shared.port.postMessage({ type: "leave" } satisfies PageMessage));
  addEventListener("pageshow", (event) => event.persisted && follow());
  return shared.port;
}

function take(message: StreamMessage): void {
  if (message.type === "state") {
    if (message.key && sessionKey() && message.key !== sessionKey()) return; // about a session that another has followed
    if (message.state === "signed-out") {
      forgetSession(message.key);
      forget();
    }
    live.state = message.state;
    return;
  }
  if (message.type === "ready") {
    clockSkew = message.time * 1000 - Date.now();
    if (renewed) {
      rows.clear();
      for (const [id, row] of renewed) rows.set(id, row);
      renewed = undefined;
    }
    if (!live.complete) {
      live.complete = true; // and the rows are shown with it, or "No workloads yet" would be said of those that are on their way
      live.version += 1;
    }
  } else if (message.type === "gone") {
    for (const id of message.ids) (renewed ?? rows).delete(id);
  } else {
    if (message.type === "reset" && live.complete) renewed = new Map();
    else if (message.type === "reset") rows.clear();
    for (const row of message.rows) (renewed ?? rows).set(row.id, row);
  }
  if (!pendingSince) {
    pendingSince = performance.now();
    setTimeout(show, rows.size > MANY_ROWS && live.complete ? MANY_VIEW_MS : VIEW_MS);
  }
}
