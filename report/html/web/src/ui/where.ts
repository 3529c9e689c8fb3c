// "train.py:51" as an element whose line stays where the name of the file has to be cut.
import { h } from "./dom";

export function whereElement(location: string): HTMLElement {
  const found = /^(.+)(:\d+)$/s.exec(location);
  return h("span.where", h("span.file", found ? found[1]! : location), found ? h("span.at-line", found[2]!) : null);
}
