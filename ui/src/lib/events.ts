// Parses text/event-stream as our server writes it: one line of data for each event.

export interface ServerEvent {
  id: string;
  name: string;
  data: string;
}

/** Splits chunks into events; a chunk may end anywhere. Comments are keep-alives. */
export class EventParser {
  #rest = "";

  push(text: string): ServerEvent[] {
    const blocks = (this.#rest + text).split("\n\n");
    this.#rest = blocks.pop() ?? "";
    return blocks.map(parseBlock).filter((event) => event.name !== "");
  }
}

function parseBlock(block: string): ServerEvent {
  const event: ServerEvent = { id: "", name: "", data: "" };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(": ");
    const field = line.slice(0, colon);
    if (field === "id") event.id = line.slice(colon + 2);
    if (field === "event") event.name = line.slice(colon + 2);
    if (field === "data") event.data = line.slice(colon + 2);
  }
  return event;
}
