// The SharedWorker of all pages of this browser: it holds the one stream, so that ten tabs do not use up the connections
// that a browser opens to one server. Where there are no SharedWorkers, each page has it as a worker of its own.

import { WorkloadStream } from "./lib/stream";
import type { PageMessage, StreamMessage } from "./lib/types";

interface Port {
  postMessage(message: StreamMessage): void;
  onmessage: ((event: MessageEvent<PageMessage>) => void) | null;
}

const ports = new Set<Port>();
const stream = new WorkloadStream((message) => {
  for (const port of ports) port.postMessage(message);
});

function serve(port: Port): void {
  port.onmessage = ({ data }) => {
    if (data.type === "leave") {
      ports.delete(port);
      return;
    }
    stream.follow(data.key, data.url); // first, so that a page is not told about the end of another session
    const isNew = !ports.has(port);
    ports.add(port);
    port.postMessage({ type: "state", state: stream.state, key: stream.key }); // also to a page that returns: another page may have started the same session
    if (isNew) {
      port.postMessage({ type: "reset", rows: [...stream.rows.values()] });
      if (stream.state === "live") port.postMessage({ type: "ready", time: Date.now() / 1000 });
    }
    stream.retry();
  };
}

if ("onconnect" in self) {
  self.onconnect = (event: MessageEvent) => {
    const port = event.ports[0];
    if (port) serve(port);
  };
} else {
  serve(self as unknown as Port);
}

self.addEventListener("online", () => stream.retry());
