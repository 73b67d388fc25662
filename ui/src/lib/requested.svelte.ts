// What was asked for elsewhere, in the command palette for one, and is for the Workloads page to do.

import type { Action } from "./actions";

export const requested = $state<{ value: { action: Action["name"]; id: string } | undefined }>({ value: undefined });
