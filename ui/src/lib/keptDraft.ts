// The form of a training as it stands, for this tab alone: who loads the page again, or whose session is over and who signs in again, goes
// on where he was. It is gone once the training is made, somebody goes elsewhere, or signs out; nobody else gets to see it.

import { withoutSecrets } from "./secretVariables";
import type { Training } from "./training";

const NAME = "rowlock.draft";
const LEFT = "rowlock.left"; // changes when somebody signs out, which all tabs hear
let owner = ""; // who is signed in; nothing is kept for nobody

export interface KeptDraft {
  /** Of the page: another form begins from scratch. */
  address: string;
  step: number;
  training: Training;
  templateId: string;
  copied: Partial<Training>;
  description: string;
  /** Variables whose values are not kept, as they look like secrets: whoever fills the form types them again. */
  untold: string[];
}

/** A session of `user` has begun at this address: what anybody else had typed, or he himself elsewhere, is not kept. */
export function claimDraft(user: string, address: string): void {
  owner = user;
  if (!keptDraft(address)) forgetDraft();
}

/** Somebody signs out: what he had typed is forgotten, in all tabs. */
export function leaveDraft(): void {
  dropDraft();
  localStorage.setItem(LEFT, String(Date.now()));
}

function dropDraft(): void {
  owner = ""; // the form is there for a moment yet
  forgetDraft();
}

addEventListener("storage", (event) => event.key === LEFT && dropDraft());

export function keepDraft(draft: KeptDraft): void {
  if (!owner) return;
  try {
    sessionStorage.setItem(NAME, JSON.stringify({ ...withoutSecrets(draft), user: owner }));
  } catch {
    forgetDraft(); // there is no room: an older one is not what is on the page
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
