// Warnings that the server adds to its answers, for example that they are old because the real cluster does not answer.

import { call, watchAnswers } from "./api";

const LOOK_MS = 10_000; // a page may have no other requests

export const notice = $state({ text: "" });

/** The sentences of a header such as `299 - "the cluster does not answer"`. */
function sentencesOf(header: string | null): string {
  return [...(header ?? "").matchAll(/299 \S+ "((?:[^"\\]|\\.)*)"/g)].map(([, text = ""]) => text.replace(/\\(.)/g, "$1")).join(" ");
}

/** Keep it up to date; returns a function that stops this. */
export function watchNotice(): () => void {
  const over = watchAnswers((answer) => (notice.text = sentencesOf(answer.headers.get("Warning"))));
  const look = (): void => void (document.hidden || call("GET", "ui/session").catch(() => undefined)); // the stream reports errors
  look();
  const timer = setInterval(look, LOOK_MS);
  return () => (over(), clearInterval(timer), (notice.text = ""));
}
