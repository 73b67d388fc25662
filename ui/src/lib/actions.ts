// Actions on workloads, and the equivalent commands.

import { ApiError, call } from "./api";
import { shellWord } from "./format";
import type { Row } from "./types";

export interface Action {
  name: "STOP" | "RUN" | "DELETE";
  done: string;
  command: string;
  allows: (row: Row) => boolean;
  perform: (row: Row) => Promise<unknown>;
}

const STOPPED = new Set(["Stopped", "Stopping"]);

export const STOP: Action = {
  name: "STOP",
  done: "is stopped",
  command: "suspend",
  allows: (row) => row.canStop && !STOPPED.has(row.phase) && row.phase !== "Deleting",
  perform: (row) => call("POST", `workloads/distributed/${encodeURIComponent(row.id)}/suspend`),
};
export const RUN: Action = {
  name: "RUN",
  done: "runs again",
  command: "resume",
  allows: (row) => row.canStop && STOPPED.has(row.phase),
  perform: (row) => call("POST", `workloads/distributed/${encodeURIComponent(row.id)}/resume`),
};
export const DELETE: Action = {
  name: "DELETE",
  done: "is deleted",
  command: "delete -y",
  allows: (row) => row.phase !== "Deleting",
  perform: (row) => call("DELETE", `workloads/distributed/${encodeURIComponent(row.id)}`),
};
export const ACTIONS = [STOP, RUN, DELETE];

/** The equivalent commands, one line for each project. */
export function commandsFor(action: Action, rows: Row[]): string[] {
  const byProject = new Map<string, string[]>();
  for (const row of rows) byProject.set(row.projectName, [...(byProject.get(row.projectName) ?? []), shellWord(row.name)]);
  return [...byProject].map(([project, names]) => `rowlock ${action.command} ${names.join(" ")} -p ${shellWord(project)}`);
}

/** Apply the action to all, a few at a time. Returns the messages of refused ones. */
export async function performAll(action: Action, rows: Row[]): Promise<string[]> {
  const refusals: string[] = [];
  const waiting = [...rows];
  const work = async (): Promise<void> => {
    for (let row = waiting.shift(); row; row = waiting.shift()) {
      try {
        await action.perform(row);
      } catch (error) {
        refusals.push(`${row.name}: ${error instanceof ApiError ? error.message : String(error)}`);
      }
    }
  };
  await Promise.all([work(), work(), work(), work()]);
  return refusals;
}
