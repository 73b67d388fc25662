// What the server says of its answers beside them: that they are old, because a real cluster does not answer it, for one.

import { call, watchAnswers } from "./api";

const LOOK_MS = 10_000; // a page may have nothing else to ask for

export const notice = $state({ text: "" });

/** The sentences of a header such as `299 - "the cluster does not answer"`. */
function sentencesOf(header: string | null): string {
  return [...(header ?? "").matchAll(/299 \S+ "((?:[^"\\]|\\.)*)"/g)].map(([, text = ""]) => text.replace(/\\(.)/g, "$1")).join(" ");
}

/** Keep it up to date until the result is called. */
export function watchNotice(): () => void {
  const over = watchAnswers((answer) => (notice.text = sentencesOf(answer.headers.get("Warning"))));
  const look = (): void => void (document.hidden || call("GET", "ui/session").catch(() => undefined)); // what is wrong with it, the stream says
  look();
  const timer = setInterval(look, LOOK_MS);
  return () => (over(), clearInterval(timer), (notice.text = ""));
}
