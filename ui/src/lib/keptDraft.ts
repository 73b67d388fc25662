// The form of a training as it stands, for this tab alone: who loads the page again goes on where he was. It is gone once the training
// is made, somebody goes elsewhere, or the session is over.

import type { Training } from "./training";

const NAME = "rowlock.draft";

export interface KeptDraft {
  /** Of the page: another form begins from scratch. */
  address: string;
  step: number;
  training: Training;
  templateId: string;
  copied: Partial<Training>;
  description: string;
}

export function keepDraft(draft: KeptDraft): void {
  try {
    sessionStorage.setItem(NAME, JSON.stringify(draft));
  } catch {
    forgetDraft(); // there is no room: an older one is not what is on the page
  }
}

export function forgetDraft(): void {
  sessionStorage.removeItem(NAME);
}

export function keptDraft(address: string): KeptDraft | undefined {
  try {
    const kept = JSON.parse(sessionStorage.getItem(NAME) ?? "null") as KeptDraft | null;
    return kept?.address === address ? kept : undefined;
  } catch {
    return undefined;
  }
}
