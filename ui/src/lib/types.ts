// What the server tells: rows of the live stream and answers of the REST API (`answers.ts`), and what the page adds to them.

import type { Row } from "./answers";

export type { HistoryRecord as EventRecord, Pod, Project, Row, StructureObject } from "./answers";

export interface Session {
  user: string;
  version: string;
  cluster: string;
  /** Whether the server runs over a Kubernetes cluster, whose pods need images. */
  isReal: boolean;
}

export interface Why {
  sentence: string;
  phase: string;
  incidents: { sentence: string; rank?: number | string }[];
  verdict: { kind: string; sentence: string } | null;
}

/** Messages from the worker to its pages. */
export type StreamMessage =
  | { type: "reset"; rows: Row[] }
  | { type: "rows"; rows: Row[] }
  | { type: "gone"; ids: string[] }
  | { type: "ready"; time: number }
  | { type: "state"; state: StreamState; key: string }; // the session that it is about

export type StreamState = "connecting" | "live" | "reconnecting" | "signed-out";

/** Messages from a page to the worker. */
export type PageMessage = { type: "follow"; key: string; url: string } | { type: "leave" };

/** The ways to sign in that the server offers. */
export interface Logins {
  password: boolean;
  oidc: { name: string } | null;
  code: boolean;
  /** Sign in with a token of the cluster. */
  token: boolean;
}
