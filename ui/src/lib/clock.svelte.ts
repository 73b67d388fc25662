// The clock by which times are written: local or UTC.

import { remember, remembered } from "./prefs";

export const clock = $state({ isUtc: remembered<string>("clock", "local") === "UTC" });

export function setClock(name: "local" | "UTC"): void {
  clock.isUtc = name === "UTC";
  remember("clock", name);
}

/** For `toLocaleString`. */
export function zone(): { timeZone?: string } {
  return clock.isUtc ? { timeZone: "UTC" } : {};
}
