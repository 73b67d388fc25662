// The entries of the command palette: pages, actions, and every workload with its tabs.

import { ACTIONS, type Action } from "./actions";
import { requested } from "./requested.svelte";
import { go } from "./route.svelte";
import type { Row } from "./types";

export interface Entry {
  id: string;
  title: string;
  about: string;
  run: () => void;
}

export const PAGES = [["overview", "Overview"], ["workloads", "Workloads"], ["runs", "Runs"], ["sweeps", "Sweeps"], ["queue", "Queue"], ["nodes", "Nodes"], ["projects", "Projects"], ["hours", "Hours"], ["assets", "Assets"], ["access", "Access"]] as const;
const PARTS = [["logs", "Logs of"], ["metrics", "Metrics of"], ["terminal", "Terminal of"], ["pods", "Pods of"], ["structure", "Structure of"], ["details", "Details of"]] as const;
const SHOWN = 40;

function open(...parts: string[]): () => void {
  return () => go(...parts);
}

/** The page of the workload; it asks before it does anything that cannot be undone. */
function begin(row: Row, action: Action["name"]): void {
  go("workloads", row.id, "events");
  requested.value = { action, id: row.id };
}

function fixedEntries(): Entry[] {
  return [
    ...PAGES.map(([key, title]) => ({ id: key, title, about: "page", run: open(key) })),
    ...[["pools", "Node pools"], ["policies", "Policies"], ["clusters", "Clusters"]].map(([key = "", title = ""]) => ({ id: key, title, about: "page", run: open("cluster", key) })),
    ...["training", "workspace"].map((word) => ({ id: `new ${word}`, title: `New ${word}`, about: "NEW WORKLOAD", run: open("new", word) })),
  ];
}

/** The entries that contain every word; those that begin with the first word come first. */
export function findEntries(text: string, rows: Iterable<Row>, extra: Entry[]): Entry[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const has = (entry: { title: string; about: string }): boolean => words.every((word) => `${entry.title} ${entry.about}`.toLowerCase().includes(word));
  const found = [...fixedEntries(), ...extra].filter(has);
  const first = words[0] ?? "";
  if (first) {
    const matching: Entry[] = [];
    for (const row of rows) {
      const about = `${row.phase} · ${row.projectName}`;
      const parts = PARTS.map(([part, title]) => ({ id: `${row.id} ${part}`, title: `${title} ${row.name}`, about, run: open("workloads", row.id, part) }));
      const own = { id: row.id, title: row.name, about, run: open("workloads", row.id, "events") };
      const copy = { id: `${row.id} copy`, title: `Make a copy of ${row.name}`, about, run: open("new", "training", row.id) };
      const actions = ACTIONS.filter((action) => action.allows(row)).map(({ name }) => ({ id: `${row.id} ${name}`, title: `${name[0]}${name.slice(1).toLowerCase()} ${row.name}`, about, run: () => begin(row, name) }));
      matching.push(...[own, ...parts, copy, ...actions].filter(has));
      if (matching.length > 20 * SHOWN) break;
    }
    found.push(...matching);
  }
  const rank = (entry: Entry): number => (entry.title.toLowerCase().startsWith(first) ? 0 : 1);
  return found.map((entry, index) => [entry, index] as const).sort(([a, i], [b, j]) => rank(a) - rank(b) || i - j).map(([entry]) => entry).slice(0, SHOWN);
}
