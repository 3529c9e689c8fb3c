// A tab for each view.
import { count } from "../model/format";
import type { Scene } from "../model/scene";
import { h, replace } from "../ui/dom";
import type { View } from "../views/view";

export class Tabs {
  readonly element = h("div.tabs", { attributes: { role: "tablist", "aria-label": "Views" } });
  private readonly tabs = new Map<View, HTMLButtonElement>();

  constructor(views: View[], choose: (view: View) => void) {
    views.forEach((view, i) => {
      const tab = h(
        "button",
        {
          id: `tab-${view.id}`,
          attributes: { role: "tab", "aria-controls": "view", "aria-selected": "false" },
          on: {
            click: () => choose(view),
            keydown: (event) => {
              const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
              if (by === 0) return;
              const next = views[(i + by + views.length) % views.length]!;
              choose(next);
              this.tabs.get(next)!.focus();
              event.stopPropagation();
            },
          },
        },
        view.title,
      );
      tab.type = "button";
      this.tabs.set(view, tab);
      this.element.append(tab);
    });
  }

  show(chosen: View, scene: Scene | null): void {
    for (const [view, tab] of this.tabs) {
      tab.setAttribute("aria-selected", String(view === chosen));
      tab.tabIndex = view === chosen ? 0 : -1;
      const number = scene ? countOf(view, scene) : null;
      replace(tab, view.title, number ? h("span.badge", count(number)) : null);
    }
  }

  scrollTo(view: View): void {
    const tab = this.tabs.get(view)!;
    this.element.scrollTo({ left: tab.offsetLeft - this.element.clientWidth / 2 + tab.clientWidth / 2 });
  }
}

// The number beside a view's title; none where the recording's document is not what it should be.
function countOf(view: View, scene: Scene): number | null {
  try {
    return view.count?.(scene) ?? null;
  } catch {
    return null;
  }
}
