// A request from elsewhere, such as the command palette, for the Workloads page.

import type { Action } from "./actions";

export const requested = $state<{ value: { action: Action["name"]; id: string } | undefined }>({ value: undefined });
