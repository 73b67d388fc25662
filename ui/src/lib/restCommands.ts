// A request of the REST API as a line of `curl`, where no command does the same. Its variables are those of docs/rest.md.

import { shellWord } from "./format";

/** `path` is below `api/`, with its version. */
export function curlCommand(method: string, path: string, body?: unknown): string {
  const data = body === undefined ? "" : ` -H 'Content-Type: application/json' -d ${shellWord(JSON.stringify(body))}`;
  return `curl -sS --cacert "$D/ca.crt" -H "Authorization: Bearer $TOKEN" -X ${method} "$URL/api/${path}"${data}`;
}
