// Keeps the form of a new training for this tab: after a reload, or after signing in again, the user continues with it.
// It is forgotten when the training is created, and when the user leaves the form or signs out. Other users never see it.

import { withoutSecrets } from "./secretVariables";
import type { Training } from "./training";

const NAME = "rowlock.draft";
const LEFT = "rowlock.left"; // changes at a sign-out, so that all tabs get a `storage` event
let owner = ""; // the signed-in user; nothing is kept without one

export interface KeptDraft {
  /** The page's address; a form at another address starts empty. */
  address: string;
  step: number;
  training: Training;
  templateId: string;
  copied: Partial<Training>;
  description: string;
  /** Variables whose values are not kept because they look like secrets: the user types them again. */
  untold: string[];
}

/** A session of `user` has begun at this address: forget a draft of another user or of another address. */
export function claimDraft(user: string, address: string): void {
  owner = user;
  if (!keptDraft(address)) forgetDraft();
}

/** At a sign-out: forget the draft in all tabs. */
export function leaveDraft(): void {
  dropDraft();
  localStorage.setItem(LEFT, String(Date.now()));
}

function dropDraft(): void {
  owner = ""; // the form still exists for a moment
  forgetDraft();
}

addEventListener("storage", (event) => event.key === LEFT && dropDraft());

export function keepDraft(draft: KeptDraft): void {
  if (!owner) return;
  try {
    sessionStorage.setItem(NAME, JSON.stringify({ ...withoutSecrets(draft), user: owner }));
  } catch {
    forgetDraft(); // no space left: an older draft would differ from the page
  }
}

export function forgetDraft(): void {
  sessionStorage.removeItem(NAME);
}

export function keptDraft(address: string): KeptDraft | undefined {
  try {
    const kept = JSON.parse(sessionStorage.getItem(NAME) ?? "null") as (KeptDraft & { user: string }) | null;
    return kept?.address === address && kept.user === owner ? kept : undefined;
  } catch {
    return undefined;
  }
}
