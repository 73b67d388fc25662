// Downloads go past the page, since a log may have gigabytes. The browser requests an address that works once,
// since a link cannot send the session's key.

import { address, call } from "./api";

/** `path` is the path of a log in the REST API. Throws ApiError. */
export async function saveFile(path: string, name: string): Promise<void> {
  const { ticket } = await call<{ ticket: string }>("POST", "ui/downloads", { path: `/api/v1/${path}`, name });
  const link = document.createElement("a");
  link.href = address(`ui/downloads/${encodeURIComponent(ticket)}`);
  link.download = name;
  link.click();
}
