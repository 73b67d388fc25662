// The terminal, in a file of its own that is loaded with the first terminal.

import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";

/** xterm writes its colours into <style> elements and style attributes, which the content security policy forbids,
 * since injected markup could use them. A constructed style sheet and the CSSOM are allowed. */
function strictDocument(): Document {
  return new Proxy(document, {
    get(target, name) {
      if (name === "createElement") return (tag: string) => (tag === "style" ? constructedStyle() : document.createElement(tag));
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value as (...args: unknown[]) => unknown).bind(target) : value;
    },
  });
}

// Colours beyond the palette: xterm sets the attribute `style` of its spans. Set the same through the CSSOM, which is allowed.
HTMLSpanElement.prototype.setAttribute = function (name: string, value: string): void {
  if (name === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
};

function constructedStyle(): HTMLElement {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  const stand = document.createElement("span");
  stand.hidden = true;
  Object.defineProperty(stand, "textContent", { set: (text: string) => sheet.replaceSync(text) });
  stand.remove = function (): void {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== sheet);
    Element.prototype.remove.call(this);
  };
  return stand;
}

export function newTerminal(): { terminal: Terminal; fit: FitAddon } {
  const terminal = new Terminal({ documentOverride: strictDocument(), cursorBlink: false, fontSize: 13, scrollback: 5000, screenReaderMode: false });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  return { terminal, fit };
}
