// The page: timelines above, one view below, and what ties them together.
import type { PageData, SourceFile } from "../data";
import { basename, markdownText, plural } from "../model/format";
import { type Compared, Recordings, type Scene } from "../model/scene";
import { movesTime, Store } from "../state";
import { button, h, replace, replaceControls, select } from "../ui/dom";
import { applyTheme, onSystemTheme, type Theme } from "../ui/theme";
import { hideTooltip } from "../ui/tooltip";
import { allViews } from "../views/all";
import type { View } from "../views/view";
import { showAbout, showKeys, showText } from "./dialogs";
import { type Keyboard, pressOf } from "./keys";
import { Tabs } from "./tabs";
import { TimePanel } from "./time_panel";

export class App {
  private readonly store: Store;
  private readonly recordings: Recordings;
  private readonly views: View[];
  private readonly time: TimePanel;
  private readonly tabs: Tabs;
  private readonly panel = h("div.panel", { id: "view", attributes: { role: "tabpanel", tabindex: "-1" } });
  private readonly notes = h("details.notes");
  private readonly said = h("div.said", { attributes: { role: "status" } });
  private readonly keyboard: Keyboard;
  private theme: Theme = "auto";

  constructor(
    page: HTMLElement,
    private readonly data: PageData,
  ) {
    this.store = new Store(data.show);
    this.recordings = new Recordings(data);
    const files = new Map<string, SourceFile[]>();
    for (const file of data.files) files.set(file.path, [...(files.get(file.path) ?? []), file]);
    this.views = allViews(data, { store: this.store, files });
    this.time = new TimePanel(this.store, data);
    this.tabs = new Tabs(this.views, (view) => this.store.set({ view: view.id }));
    this.keyboard = {
      store: this.store,
      time: this.time,
      toFilter: () => this.panel.querySelector<HTMLElement>("input[type=search]")?.focus(),
      copy: () => void this.copy(),
      help: showKeys,
    };
    document.title = `${data.title} · memlab`;
    replace(
      page,
      this.skipLink(),
      this.header(),
      data.recordings.length > 0 && this.time.element,
      this.tabs.element,
      this.panel,
      this.said,
    );
    this.store.subscribe((_, changed) => this.update(movesTime(changed)));
    this.update(true);
    document.addEventListener("keydown", (event) => this.key(event));
    onSystemTheme(() => this.setTheme(this.theme));
    // Paper is white, and as wide as paper: canvases are drawn again for it.
    window.addEventListener("beforeprint", () => {
      applyTheme("light");
      document.documentElement.classList.add("printing");
      this.redraw();
    });
    window.addEventListener("afterprint", () => {
      document.documentElement.classList.remove("printing");
      this.setTheme(this.theme);
    });
  }

  private skipLink(): HTMLElement {
    const click = (event: Event) => {
      event.preventDefault();
      this.panel.focus();
    };
    return h("a.skip-link", { attributes: { href: "#view" }, on: { click } }, "To the view");
  }

  private header(): HTMLElement {
    const theme = select(
      "Theme",
      [
        ["auto", "as the system"],
        ["light", "light"],
        ["dark", "dark"],
      ],
      (value) => this.setTheme(value as Theme),
    );
    theme.element.classList.add("theme");
    return h(
      "header",
      h("div.title", h("h1", this.data.title), h("p.subtitle", subtitle(this.data)), this.notes),
      h(
        "div.actions",
        button("Copy as Markdown", () => void this.copy(), {
          title: "The view as a table, for a pull request or an issue (M)",
        }),
        button("Keys", showKeys, { title: "Keyboard (?)" }),
        button("About", () => showAbout(this.data)),
        theme.element,
      ),
    );
  }

  // ---- what is looked at

  // Of a run of which no process is there in full, views get the state and the data alone.
  private scene(): Scene {
    const { state } = this.store;
    return this.data.recordings.length > 0 ? this.recordings.scene(state) : ({ state, data: this.data } as Scene);
  }

  private activeView(): View {
    return this.views.find((view) => view.id === this.store.state.view) ?? this.views[0]!;
  }

  private update(time: boolean): void {
    hideTooltip();
    const scene = this.scene();
    if (time) this.updateTime(scene);
    this.updateView(scene);
  }

  private updateTime(scene: Scene): void {
    if (this.data.recordings.length === 0) return;
    this.time.update(scene);
    const { compared } = scene;
    const notes = compared
      ? [
          ...pairedGpus(compared),
          ...compared.before.model.source.notes.map((note) => `Before: ${note}`),
          ...compared.after.model.source.notes.map((note) => `After: ${note}`),
        ]
      : scene.model.source.notes;
    const lacking = (compared ? [compared.before, compared.after] : [scene]).some(
      (each) => each.model.source.lacks.length !== 0,
    );
    // What is missing is seen without a click, until the reader closes it.
    if (lacking && this.notes.childElementCount === 0) this.notes.open = true;
    replaceControls(
      this.notes,
      h("summary", `${plural(notes.length, "note")} on ${compared ? "these recordings" : "this recording"}`),
      h("ul", ...notes.map((note) => h("li", note))),
    );
    this.notes.hidden = notes.length === 0;
  }

  private updateView(scene: Scene): void {
    const view = this.activeView();
    this.tabs.show(view, this.data.recordings.length > 0 ? scene : null);
    this.panel.setAttribute("aria-labelledby", `tab-${view.id}`);
    if (this.panel.firstChild !== view.element) {
      replace(this.panel, view.element);
      this.tabs.scrollTo(view);
    }
    try {
      view.update(scene);
    } catch (error) {
      // A view that cannot show a recording must not take the others with it.
      replace(
        this.panel,
        h(
          "p.note",
          { attributes: { role: "alert" } },
          `This view cannot show the recording: ${error instanceof Error ? error.message : String(error)}`,
        ),
      );
      console.error(error);
    }
  }

  // ---- keyboard, theme, Markdown

  private key(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (target.matches("input, select, textarea")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    const number = Number(event.key);
    if (number >= 1 && number <= this.views.length) return this.store.set({ view: this.views[number - 1]!.id });
    const press = pressOf(event.key);
    if (!press || this.data.recordings.length === 0) return;
    press(this.keyboard, this.scene());
    event.preventDefault();
  }

  private setTheme(theme: Theme): void {
    this.theme = theme;
    applyTheme(theme);
    this.redraw();
  }

  private redraw(): void {
    const scene = this.scene();
    const view = this.activeView();
    if (this.data.recordings.length > 0) {
      this.updateTime(scene);
      this.time.redraw();
      view.update(scene);
    }
    view.redraw?.();
  }

  private async copy(): Promise<void> {
    const view = this.activeView();
    const text = `### ${markdownText(this.data.title)}: ${view.title}\n\n${view.markdown(this.scene())}\n`;
    try {
      await navigator.clipboard.writeText(text);
      this.say("Copied as Markdown.");
    } catch {
      // Without the right to the clipboard the text is shown, to be copied by hand.
      showText("Copy as Markdown", "Markdown", text);
    }
  }

  private say(text: string): void {
    this.said.textContent = text;
    this.said.classList.add("on");
    window.setTimeout(() => this.said.classList.remove("on"), 2500);
  }
}

function subtitle({ mode, run, recordings }: PageData): string {
  const first = recordings[0];
  if (mode === "run") return plural(run?.ranks.length ?? recordings.length, "process");
  if (!first) return "";
  if (mode === "compare") return `${basename(first.path)} before, ${basename(recordings[1]?.path ?? "")} after`;
  return [basename(first.path), first.host, plural(first.events, "event"), first.ended].filter(Boolean).join(" · ");
}

// Said where they are compared under different indices.
function pairedGpus({ before, after }: Compared): string[] {
  const [was, is] = [before, after].map(({ model, device }) => model.device(device)?.gpu);
  return was === undefined || is === undefined || was === is
    ? []
    : [`Each used one GPU: GPU ${was} before is compared with GPU ${is} after.`];
}
