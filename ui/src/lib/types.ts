// What the server tells: rows of the live stream and answers of the REST API (`answers.ts`), and what the page adds to them.

import type { Row } from "./answers";

export type { HistoryRecord as EventRecord, Pod, Project, Row, StructureObject } from "./answers";

export interface Session {
  user: string;
  version: string;
  cluster: string;
  /** Whether the server is over a Kubernetes cluster, whose pods run images, and not this machine's programs. */
  isReal: boolean;
}

export interface Why {
  sentence: string;
  phase: string;
  incidents: { sentence: string; rank?: number | string }[];
  verdict: { kind: string; sentence: string } | null;
}

/** What the worker that holds the stream tells its pages. */
export type StreamMessage =
  | { type: "reset"; rows: Row[] }
  | { type: "rows"; rows: Row[] }
  | { type: "gone"; ids: string[] }
  | { type: "ready"; time: number }
  | { type: "state"; state: StreamState; key: string }; // of the session that it is about

export type StreamState = "connecting" | "live" | "reconnecting" | "signed-out";

/** What a page tells the worker. */
export type PageMessage = { type: "follow"; key: string; url: string } | { type: "leave" };

/** The ways in that the server offers. */
export interface Logins {
  password: boolean;
  oidc: { name: string } | null;
  code: boolean;
  /** People have tokens of the cluster. */
  token: boolean;
}
