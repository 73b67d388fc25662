// Exec over a websocket with Kubernetes' subprotocol: the first byte of a message is its channel.

import { address, sessionKey } from "./api";

const [STDIN, STDOUT, STDERR, OUTCOME, SIZE] = [0, 1, 2, 3, 4];
const SHELL = "export TERM=xterm-256color; if [ -x /bin/bash ]; then exec /bin/bash; fi; exec /bin/sh";

interface Status {
  status?: string;
  message?: string;
  details?: { causes?: { reason?: string; message?: string }[] };
}

export interface Session {
  type: (text: string) => void;
  resize: (columns: number, rows: number) => void;
  close: () => void;
}

/** A sentence for the outcome. */
export function outcomeSentence(status: Status): string {
  const code = status.details?.causes?.find((cause) => cause.reason === "ExitCode")?.message;
  if (status.status === "Success") return "The shell ended with exit code 0.";
  return code ? `The shell ended with exit code ${code}.` : (status.message ?? "The shell ended.");
}

export function openShell(
  namespace: string,
  pod: string,
  container: string,
  on: { open: () => void; output: (bytes: Uint8Array) => void; end: (sentence: string) => void },
): Session {
  const query = new URLSearchParams({ container, stdin: "true", stdout: "true", tty: "true" });
  for (const word of ["/bin/sh", "-c", SHELL]) query.append("command", word);
  const url = address(`namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(pod)}/exec?${query}`).replace(/^http/, "ws");
  const socket = new WebSocket(url, ["v5.channel.k8s.io", `key.rowlock.dev.${sessionKey()}`]);
  socket.binaryType = "arraybuffer";
  let said = "";
  const send = (channel: number | undefined, text: string): void => {
    if (socket.readyState !== WebSocket.OPEN) return;
    const bytes = new TextEncoder().encode(text);
    const message = new Uint8Array(bytes.length + 1);
    message[0] = channel ?? 0;
    message.set(bytes, 1);
    socket.send(message);
  };
  socket.onopen = () => on.open();
  socket.onmessage = (event: MessageEvent<ArrayBuffer>) => {
    const bytes = new Uint8Array(event.data);
    if (bytes[0] === STDOUT || bytes[0] === STDERR) on.output(bytes.subarray(1));
    if (bytes[0] === OUTCOME) said = outcomeSentence(JSON.parse(new TextDecoder().decode(bytes.subarray(1))) as Status);
  };
  socket.onclose = () => on.end(said || "The connection was cut: the server went away, or nobody typed for long.");
  return {
    type: (text) => send(STDIN, text),
    resize: (columns, rows) => send(SIZE, JSON.stringify({ Width: columns, Height: rows })),
    close: () => ((socket.onopen = socket.onmessage = socket.onclose = null), socket.close()),
  };
}
