// How many components of nn.Modules' names are told apart: a control of the views that sum by them.
import { deepestNnModule } from "../model/nn_modules";
import type { SiteTable } from "../model/site_table";
import type { Store } from "../state";
import { select } from "../ui/dom";

export interface DepthChoice {
  element: HTMLElement;
  update: (table: SiteTable, depth: number) => void;
}

export function depthChoice(store: Store): DepthChoice {
  const box = select("Depth", [], (value) => store.set({ depth: Number(value) }));
  let filled: SiteTable | null = null;
  let deepest = 0;
  return {
    element: box.element,
    update: (table, depth) => {
      if (filled !== table) {
        filled = table;
        deepest = deepestNnModule(table);
        box.options(
          Array.from({ length: deepest + 1 }, (_, i): [string, string] => [
            String(i),
            i === 0 ? "whole models" : i === deepest ? `${i}: all` : String(i),
          ]),
        );
      }
      box.set(String(Math.min(Math.max(0, depth), deepest)));
    },
  };
}
