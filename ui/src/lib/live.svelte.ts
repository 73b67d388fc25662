// The workloads that this page shows, updated by the worker's messages; `version` moves at most once a frame.

import { address, forgetSession, sessionKey } from "./api";
import type { PageMessage, Row, StreamMessage, StreamState } from "./types";

const VIEW_MS = 200; // a table that changes its order more often cannot be read
const MANY_ROWS = 2000;
const MANY_VIEW_MS = 500;
const SCROLL_MS = 150; // the rows do not change while the user scrolls
const PATIENCE_MS = 1500; // but at most this long

export const live = $state({ state: "connecting" as StreamState, version: 0, complete: false, now: Date.now() });
export const rows = new Map<string, Row>();
let renewed: Map<string, Row> | undefined; // a list that starts anew while the page is open: the old one is shown until it is complete

let port: { postMessage(message: PageMessage): void } | undefined;
let clockSkew = 0;
let pendingSince = 0;
let scrolledAt = 0;

/** Call while the table is scrolled: changes wait for a moment. */
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

/** Forget everything: the session has ended or was replaced. */
export function forget(): void {
  port?.postMessage({ type: "leave" }); // the next "follow" gets the full list
  rows.clear();
  renewed = undefined;
  live.complete = false;
  live.version += 1;
}

/** Start, or continue with a new session. */
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
    if (message.key && sessionKey() && message.key !== sessionKey()) return; // about the session of another page
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
      live.complete = true; // together with the rows, or "No workloads yet" would show before they arrive
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
