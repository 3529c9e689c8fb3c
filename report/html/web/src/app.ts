// The page: timelines above, one view below, and what ties them together.
import licenses from "virtual:licenses";
import type { PageData, SourceFile } from "./data";
import { greatest } from "./model/curves";
import { basename, bytes, count, duration, markdownText, plural, signedBytes } from "./model/format";
import type { Figures } from "./model/recording";
import { curveDevice, greatestMoment, RecordingModel } from "./model/recording";
import { type State, Store } from "./state";
import { button, h, replace, replaceControls, select } from "./ui/dom";
import { applyTheme, curveColour, onSystemTheme, type Theme } from "./ui/theme";
import { type Shown, Timeline } from "./ui/timeline";
import { hideTooltip } from "./ui/tooltip";
import { FailuresView, InefficienciesView, LeaksView, LedgerView } from "./views/documents";
import { ChangesView, HoldersView } from "./views/holders";
import { MapView } from "./views/map";
import { OverTimeView } from "./views/over_time";
import { RanksView } from "./views/ranks";
import { RecordingView } from "./views/recording";
import { SourceView } from "./views/source";
import type { Compared, Scene, View } from "./views/view";

const keysHelp: [string, string][] = [
  ["1 … 9", "the views"],
  ["/", "filter"],
  ["P", "the peak"],
  ["O", "the next failure for lack of memory"],
  ["E", "the end"],
  ["← →", "on the timeline: the moment before and after, with Shift a range"],
  ["[ ]", "the scope before and after"],
  ["+ − 0 Z", "zoom in, out, the whole run, the range"],
  ["T, I, F", "table, icicle graph, flame graph"],
  ["B", "bottom-up or top-down"],
  ["M", "copy the view as Markdown"],
  ["Esc", "nothing selected"],
  ["?", "this help"],
];

export class App {
  private readonly store = new Store();
  private readonly models: (RecordingModel | undefined)[];
  private readonly figuresCache = new Map<string, Figures>();
  private readonly totalsCache = new Map<string, Float64Array>();
  private readonly views: View[];
  private readonly tabs = h("div", { class: "tabs", attributes: { role: "tablist", "aria-label": "Views" } });
  private readonly panel = h("div", { class: "panel", id: "view", attributes: { role: "tabpanel", tabindex: "-1" } });
  private readonly chips = h("div", { class: "chips", attributes: { role: "group", "aria-label": "Curves" } });
  private readonly timelineBox = h("div", { class: "timelines" });
  private readonly selectionText = h("p", { class: "selection-text", attributes: { role: "status" } });
  private readonly jumps = h("div", { class: "jumps" });
  private timelines: Timeline[] = [];
  private timelineOf = -1;
  private readonly device = select("GPU", [], (value) => this.store.set({ device: Number(value), curves: null }));
  private readonly recording = select("Recording", [], (value) =>
    this.store.set({
      recording: Number(value),
      device: null,
      from: null,
      to: null,
      zoomFrom: null,
      zoomTo: null,
      map: null,
    }),
  );
  private readonly notes = h("details", { class: "notes" });
  private readonly said = h("div", { class: "said", attributes: { role: "status" } });
  private theme: Theme = "auto";

  constructor(
    private readonly page: HTMLElement,
    private readonly data: PageData,
  ) {
    this.models = data.recordings.map(() => undefined);
    const files = new Map<string, SourceFile[]>();
    for (const file of data.files) files.set(file.path, [...(files.get(file.path) ?? []), file]);
    const around = { store: this.store, files };
    const sites =
      data.mode === "compare"
        ? [new ChangesView(around), new HoldersView(around)]
        : [new HoldersView(around), new ChangesView(around)];
    this.views = [
      ...(data.run ? [new RanksView(around, data.run)] : []),
      ...(data.recordings.length > 0
        ? [
            ...sites,
            new OverTimeView(around),
            new MapView(around),
            new LeaksView(around),
            new InefficienciesView(around),
            new FailuresView(around),
            new LedgerView(around),
            new SourceView(around),
            new RecordingView(),
          ]
        : []),
    ];
    this.build();
    this.store.subscribe((_, changed) => this.update(changed));
    this.update(new Set());
    document.addEventListener("keydown", (event) => this.key(event));
    const again = () => this.redraw();
    onSystemTheme(() => this.setTheme(this.theme));
    // Paper is white, and as wide as paper: canvases are drawn anew for it.
    window.addEventListener("beforeprint", () => {
      applyTheme("light");
      document.documentElement.classList.add("printing");
      again();
    });
    window.addEventListener("afterprint", () => {
      document.documentElement.classList.remove("printing");
      this.setTheme(this.theme);
    });
  }

  private model(index: number): RecordingModel {
    return (this.models[index] ??= new RecordingModel(this.data.recordings[index]!));
  }

  private build(): void {
    const { data } = this;
    document.title = `${data.title} · memlab`;
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
    replace(
      this.page,
      h(
        "a",
        {
          class: "skip-link",
          attributes: { href: "#view" },
          on: {
            click: (event) => {
              event.preventDefault();
              this.panel.focus();
            },
          },
        },
        "To the view",
      ),
      h(
        "header",
        {},
        h(
          "div",
          { class: "title" },
          h("h1", {}, data.title),
          h("p", { class: "subtitle" }, this.subtitle()),
          this.notes,
        ),
        h(
          "div",
          { class: "actions" },
          button("Copy as Markdown", () => void this.copy(), {
            title: "The view as a table, for a pull request or an issue (M)",
          }),
          button("Keys", () => this.help(), { title: "Keyboard (?)" }),
          button("About", () => this.about()),
          theme.element,
        ),
      ),
      ...(data.recordings.length > 0
        ? [
            h(
              "section",
              { class: "time", attributes: { "aria-label": "Timeline" } },
              this.timelineBox,
              h(
                "div",
                { class: "selection" },
                this.recording.element,
                this.device.element,
                this.jumps,
                this.selectionText,
              ),
            ),
          ]
        : []),
      this.tabs,
      this.panel,
      this.said,
    );
    this.recording.options(
      data.recordings.map((one, i) => [
        String(i),
        data.mode === "compare"
          ? `${i === 0 ? "before" : "after"}: ${one.name}`
          : one.rank === null || one.name.startsWith(`rank ${one.rank}`)
            ? one.name
            : `rank ${one.rank}: ${one.name}`,
      ]),
    );
    this.recording.element.hidden = data.recordings.length < 2;
    this.views.forEach((view, i) => {
      const tab = h(
        "button",
        {
          id: `tab-${view.id}`,
          attributes: { role: "tab", "aria-controls": "view", "aria-selected": "false" },
          on: {
            click: () => this.store.set({ view: view.id }),
            keydown: (event) => {
              const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
              if (by === 0) return;
              const next = this.views[(i + by + this.views.length) % this.views.length]!;
              this.store.set({ view: next.id });
              document.getElementById(`tab-${next.id}`)?.focus();
              event.stopPropagation();
            },
          },
        },
        view.title,
      );
      tab.type = "button";
      this.tabs.append(tab);
    });
  }

  private subtitle(): string {
    const { data } = this;
    const first = data.recordings[0];
    if (data.mode === "run") return plural(data.run?.ranks.length ?? data.recordings.length, "process");
    if (!first) return "";
    if (data.mode === "compare")
      return `${basename(first.path)} before, ${basename(data.recordings[1]?.path ?? "")} after`;
    return [basename(first.path), first.host, plural(first.events, "event"), first.ended].filter(Boolean).join(" · ");
  }

  // ---- what is looked at

  private figures(recording: number, moment: number): Figures {
    const key = `${recording} ${moment}`;
    let found = this.figuresCache.get(key);
    if (!found) {
      if (this.figuresCache.size > 12) this.figuresCache.delete(this.figuresCache.keys().next().value!);
      this.figuresCache.set(key, (found = this.model(recording).figures(moment)));
    }
    return found;
  }

  private totals(recording: number, device: number): Float64Array {
    const key = `${recording} ${device}`;
    let found = this.totalsCache.get(key);
    if (!found) this.totalsCache.set(key, (found = this.model(recording).totals(device)));
    return found;
  }

  private recordingIndex(state: State): number {
    const usual = this.data.mode === "compare" ? 1 : 0;
    const chosen = state.recording ?? usual;
    return chosen >= 0 && chosen < this.data.recordings.length
      ? Math.floor(chosen)
      : Math.min(usual, this.data.recordings.length - 1);
  }

  private selectionIn(recording: number, device: number, from: number | null, to: number | null): [number, number] {
    const model = this.model(recording);
    if (from === null || to === null) {
      const peak = model.moments[greatestMoment(this.totals(recording, device), 0, model.moments.length - 1)] ?? 0;
      return [peak, peak];
    }
    const clamp = (time: number) => Math.max(0, Math.min(model.duration, time));
    return [clamp(Math.min(from, to)), clamp(Math.max(from, to))];
  }

  private scene(): Scene {
    const { state } = this.store;
    const index = this.recordingIndex(state);
    const model = this.model(index);
    const device = model.device(state.device ?? NaN)?.index ?? model.usualDevice();
    const first = this.data.mode === "compare" && index === 0;
    const [from, to] = first ? [state.beforeFrom, state.beforeTo] : [state.from, state.to];
    const selection = this.selectionIn(index, device, from, to);
    const range = selection[1] > selection[0];
    const totals = this.totals(index, device);
    const begin = model.nearestMoment(selection[0]);
    const end = model.nearestMoment(selection[1]);
    const shown = !range
      ? end
      : state.at === "begin"
        ? begin
        : state.at === "end"
          ? end
          : greatestMoment(totals, begin, end);
    let compared: Compared | null = null;
    if (this.data.mode === "compare" && this.data.recordings.length > 1) {
      const before = this.model(0);
      const after = this.model(1);
      const beforeSelection = this.selectionIn(0, device, state.beforeFrom, state.beforeTo);
      const afterSelection = this.selectionIn(1, device, state.from, state.to);
      const at = (which: 0 | 1, [a, b]: [number, number]) => {
        const one = which === 0 ? before : after;
        return b > a
          ? greatestMoment(this.totals(which, device), one.nearestMoment(a), one.nearestMoment(b))
          : one.nearestMoment(b);
      };
      compared = {
        before,
        after,
        beforeSelection,
        afterSelection,
        beforeMoment: at(0, beforeSelection),
        afterMoment: at(1, afterSelection),
      };
    }
    return {
      state,
      data: this.data,
      model,
      device,
      selection,
      range,
      begin,
      end,
      shown,
      usual: from === null || to === null,
      figures: (moment) => this.figures(index, moment),
      totals,
      compared,
    };
  }

  private activeView(): View {
    return this.views.find((view) => view.id === this.store.state.view) ?? this.views[0]!;
  }

  private update(changed: Set<keyof State>): void {
    hideTooltip();
    if (this.data.recordings.length > 0) {
      const scene = this.scene();
      if (
        changed.size === 0 ||
        [...changed].some(
          (key) =>
            !["view", "shape", "bottomUp", "filter", "skip", "search", "skipped", "group", "file", "map"].includes(key),
        )
      )
        this.updateTime(scene);
      this.updateView(scene);
    } else this.updateView(null);
  }

  private updateView(scene: Scene | null): void {
    const view = this.activeView();
    this.views.forEach((one) => {
      const tab = document.getElementById(`tab-${one.id}`)!;
      const on = one === view;
      tab.setAttribute("aria-selected", String(on));
      tab.tabIndex = on ? 0 : -1;
      const number = scene ? countOf(one, scene) : null;
      replace(tab, one.title, number ? h("span", { class: "badge" }, count(number)) : null);
    });
    this.panel.setAttribute("aria-labelledby", `tab-${view.id}`);
    if (this.panel.firstChild !== view.element) {
      replace(this.panel, view.element);
      const tab = document.getElementById(`tab-${view.id}`)!;
      this.tabs.scrollTo({ left: tab.offsetLeft - this.tabs.clientWidth / 2 + tab.clientWidth / 2 });
    }
    try {
      view.update(scene ?? ({ state: this.store.state, data: this.data } as Scene));
    } catch (error) {
      // A view that cannot show a recording must not take the others with it.
      replace(
        this.panel,
        h(
          "p",
          { class: "note", attributes: { role: "alert" } },
          `This view cannot show the recording: ${error instanceof Error ? error.message : String(error)}`,
        ),
      );
      console.error(error);
    }
  }

  // ---- the timelines

  private shown(recording: number, scene: Scene): Shown[] {
    const model = this.model(recording);
    const chosen = this.store.state.curves;
    const result: Shown[] = [];
    model.curves.forEach((curve, i) => {
      const id = `${curve.device} ${curve.name}`;
      if (chosen ? chosen.includes(id) : curve.default_on && curve.device === curveDevice(scene.device))
        result.push({
          curve,
          label: this.curveName(model, curve, curve.device === curveDevice(scene.device)),
          colour: curveColour(curve.kind, i),
          ghost: false,
        });
    });
    return result;
  }

  // "allocated" of "GPU 0: allocated" where the GPU is the one that is looked at.
  private curveName(model: RecordingModel, curve: RecordingModel["curves"][number], plain: boolean): string {
    const prefix = `${model.device(curve.device)?.short ?? ""}: `;
    return plain && curve.name.startsWith(prefix) ? curve.name.slice(prefix.length) : curve.name;
  }

  private updateTime(scene: Scene): void {
    const { state } = this.store;
    const compare = scene.compared !== null;
    const index = this.recordingIndex(state);
    const span = compare
      ? Math.max(scene.compared!.before.duration, scene.compared!.after.duration)
      : scene.model.duration;
    const recordings = compare ? [0, 1] : [index];
    if (this.timelineOf !== (compare ? -2 : index)) {
      this.timelineOf = compare ? -2 : index;
      this.timelines = recordings.map((one) => {
        const before = compare && one === 0;
        return new Timeline(
          compare ? (before ? "Timeline, before" : "Timeline, after") : "Timeline",
          this.model(one),
          {
            select: (from, to) => {
              const range = { from: Math.round(from), to: Math.round(to) };
              this.store.set(before ? { beforeFrom: range.from, beforeTo: range.to } : { ...range, map: null });
            },
            zoom: (from, to) => this.store.set({ zoomFrom: from, zoomTo: to }),
          },
          span,
          [
            ...(compare
              ? [
                  h(
                    "h2",
                    { class: "which" },
                    before ? "Before" : "After",
                    h("span", { class: "where" }, this.data.recordings[one]!.name),
                  ),
                ]
              : []),
            ...(one === recordings[0] ? [this.chips] : []),
          ],
        );
      });
      replace(this.timelineBox, ...this.timelines.map((timeline) => timeline.element));
    }
    const from =
      state.zoomFrom !== null && state.zoomTo !== null && state.zoomTo > state.zoomFrom
        ? Math.max(0, state.zoomFrom)
        : 0;
    const to =
      state.zoomFrom !== null && state.zoomTo !== null && state.zoomTo > state.zoomFrom
        ? Math.min(span, state.zoomTo)
        : span;
    const curves = recordings.map((one) => this.shown(one, scene));
    const most = compare
      ? Math.max(
          1,
          ...curves
            .flat()
            .filter((one) => one.curve.unit === "bytes")
            .map((one) => greatest(one.curve, from, to)),
        )
      : null;
    this.timelines.forEach((timeline, i) => {
      const other = compare
        ? this.model(1 - i).curves.find(
            (curve) => curve.device === curveDevice(scene.device) && curve.kind === "allocated",
          )
        : undefined;
      timeline.update({
        shown: [
          ...curves[i]!,
          ...(other
            ? [
                {
                  curve: other,
                  label: i === 0 ? "allocated after" : "allocated before",
                  colour: curveColour("device_used", 0),
                  ghost: true,
                },
              ]
            : []),
        ],
        from,
        to,
        most,
        selection: compare
          ? i === 0
            ? scene.compared!.beforeSelection
            : scene.compared!.afterSelection
          : scene.selection,
      });
    });
    this.updateChips(scene);
    this.device.options(
      scene.model.devices
        .filter((one) => one.index >= 0 || one.peakBytes > 0)
        .map((one) => [String(one.index), one.label]),
    );
    this.device.set(String(scene.device));
    this.device.element.hidden = scene.model.devices.filter((one) => one.index >= 0 || one.peakBytes > 0).length < 2;
    this.recording.set(String(index));
    const notes = compare
      ? [
          ...scene.compared!.before.source.notes.map((note) => `Before: ${note}`),
          ...scene.compared!.after.source.notes.map((note) => `After: ${note}`),
        ]
      : scene.model.source.notes;
    replaceControls(
      this.notes,
      h("summary", {}, `${plural(notes.length, "note")} on ${compare ? "these recordings" : "this recording"}`),
      h("ul", {}, ...notes.map((note) => h("li", {}, note))),
    );
    this.notes.hidden = notes.length === 0;
    this.updateJumps(scene);
    replace(this.selectionText, this.describe(scene));
  }

  private updateChips(scene: Scene): void {
    const model = scene.model;
    const shown = new Set(this.shown(this.recordingIndex(this.store.state), scene).map((one) => one.curve));
    replaceControls(
      this.chips,
      ...model.curves.map((curve, i) => {
        const own = curve.device === curveDevice(scene.device);
        if (!own && curve.device >= 0 && !shown.has(curve)) return null;
        const id = `${curve.device} ${curve.name}`;
        const chip = button(
          this.curveName(model, curve, own),
          () => {
            const ids = model.curves.filter((one) => shown.has(one)).map((one) => `${one.device} ${one.name}`);
            this.store.set({ curves: ids.includes(id) ? ids.filter((one) => one !== id) : [...ids, id] });
          },
          {
            class: "chip",
            attributes: { "aria-pressed": String(shown.has(curve)) },
            title: curve.exact ? "" : "sampled, not exact",
          },
        );
        chip.style.setProperty("--colour", curveColour(curve.kind, i));
        return chip;
      }),
    );
  }

  private updateJumps(scene: Scene): void {
    const { model } = scene;
    const go = (at: number) => this.select(scene, at, at);
    // Peaks and failures are never among those left out.
    const rare = model.marks.filter((mark) => mark.kind === "peak" || mark.kind === "oom").slice(0, 500);
    const named = [...rare, ...model.marks.filter((mark) => mark.kind === "mark").slice(0, 500)].sort(
      (a, b) => a.at - b.at,
    );
    const marks = select(
      "Go to",
      [
        ["", "a mark…"],
        ...named.map((mark, i): [string, string] => [
          String(i),
          `${mark.kind === "oom" ? "▲ " : mark.kind === "peak" ? "◆ " : ""}${mark.text || mark.kind}, ${duration(mark.at)}`,
        ]),
      ],
      (value) => {
        if (value !== "") go(named[Number(value)]!.at);
      },
    );
    const failures = model.marks.filter((mark) => mark.kind === "oom");
    replaceControls(
      this.jumps,
      button("Peak", () => this.deselect(scene), { title: "The peak of this GPU (P)" }),
      failures.length > 0
        ? button("Out of memory", () => this.nextFailure(scene), {
            class: "oom",
            title: "The next failure for lack of memory (O)",
          })
        : null,
      button("End", () => go(model.duration), { title: "The end of the recording (E)" }),
      named.length > 0 ? marks.element : null,
    );
  }

  private describe(scene: Scene): string {
    const { model, selection, totals } = scene;
    const at = (moment: number) => model.moments[moment] ?? 0;
    if (scene.compared) {
      const { compared } = scene;
      const before = this.totals(0, scene.device)[compared.beforeMoment] ?? 0;
      const after = this.totals(1, scene.device)[compared.afterMoment] ?? 0;
      return `Before ${bytes(before)} at ${duration(compared.before.moments[compared.beforeMoment] ?? 0)}, after ${bytes(after)} at ${duration(compared.after.moments[compared.afterMoment] ?? 0)}: ${signedBytes(after - before)}`;
    }
    if (scene.range) {
      const peak = greatestMoment(totals, scene.begin, scene.end);
      return `${duration(selection[0])} to ${duration(selection[1])} (${duration(selection[1] - selection[0])}): ${bytes(totals[scene.begin] ?? 0)} to ${bytes(totals[scene.end] ?? 0)}, ${signedBytes((totals[scene.end] ?? 0) - (totals[scene.begin] ?? 0))}; most ${bytes(totals[peak] ?? 0)} at ${duration(at(peak))}`;
    }
    const exact = at(scene.shown);
    const near =
      Math.abs(exact - selection[0]) > Math.max(1, model.duration / 1e6)
        ? ` (exact at ${duration(exact)}, the nearest moment)`
        : "";
    return `${scene.usual ? "Peak at" : "At"} ${duration(selection[0])}${near}: ${bytes(totals[scene.shown] ?? 0)} allocated`;
  }

  private select(scene: Scene, from: number, to: number): void {
    this.store.set(
      scene.compared && scene.model === scene.compared.before
        ? { beforeFrom: from, beforeTo: to }
        : { from, to, map: null },
    );
  }

  private deselect(scene: Scene): void {
    this.store.set(
      scene.compared && scene.model === scene.compared.before
        ? { beforeFrom: null, beforeTo: null }
        : { from: null, to: null, map: null },
    );
  }

  private nextFailure(scene: Scene): void {
    const failures = scene.model.marks.filter((mark) => mark.kind === "oom");
    const next = failures.find((mark) => mark.at > scene.selection[1]) ?? failures[0];
    if (next) this.select(scene, next.at, next.at);
  }

  // ---- keyboard, theme, Markdown, boxes

  private key(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (target.matches("input, select, textarea")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    const number = Number(event.key);
    if (number >= 1 && number <= this.views.length) return this.store.set({ view: this.views[number - 1]!.id });
    if (this.data.recordings.length === 0) return;
    const scene = this.scene();
    if (event.key === "p") this.deselect(scene);
    else if (event.key === "o") this.nextFailure(scene);
    else if (event.key === "e") this.select(scene, scene.model.duration, scene.model.duration);
    else if (event.key === "Escape") this.deselect(scene);
    else if (event.key === "t") this.store.set({ shape: "table" });
    else if (event.key === "i") this.store.set({ shape: "icicle" });
    else if (event.key === "f") this.store.set({ shape: "flame" });
    else if (event.key === "b") this.store.set({ bottomUp: !this.store.state.bottomUp });
    else if (event.key === "m") void this.copy();
    else if (event.key === "?") this.help();
    else if (event.key === "/") this.panel.querySelector<HTMLElement>("input[type=search]")?.focus();
    else if (!this.timelines.at(-1)?.press(event.key)) return;
    event.preventDefault();
  }

  private setTheme(theme: Theme): void {
    this.theme = theme;
    applyTheme(theme);
    this.redraw();
  }

  private redraw(): void {
    if (this.data.recordings.length > 0) this.updateTime(this.scene());
    for (const timeline of this.timelines) timeline.redraw();
    const view = this.activeView();
    if (this.data.recordings.length > 0) view.update(this.scene());
    view.redraw?.();
  }

  private async copy(): Promise<void> {
    const scene =
      this.data.recordings.length > 0 ? this.scene() : ({ state: this.store.state, data: this.data } as Scene);
    const view = this.activeView();
    const text = `### ${markdownText(this.data.title)}: ${view.title}\n\n${view.markdown(scene)}\n`;
    try {
      await navigator.clipboard.writeText(text);
      this.say("Copied as Markdown.");
    } catch {
      // Without the right to the clipboard the text is shown, to be copied by hand.
      const area = h("textarea", { attributes: { rows: "16", "aria-label": "Markdown" } });
      area.value = text;
      this.dialog("Copy as Markdown", area);
      area.select();
    }
  }

  private say(text: string): void {
    this.said.textContent = text;
    this.said.classList.add("on");
    window.setTimeout(() => this.said.classList.remove("on"), 2500);
  }

  private dialog(title: string, ...content: HTMLElement[]): void {
    const box = h(
      "dialog",
      { attributes: { "aria-label": title } },
      h("h2", {}, title),
      ...content,
      h(
        "p",
        { class: "right" },
        button("Close", () => box.close()),
      ),
    );
    box.addEventListener("close", () => box.remove());
    document.body.append(box);
    box.showModal();
  }

  private help(): void {
    this.dialog(
      "Keyboard",
      h("dl", { class: "keys" }, ...keysHelp.flatMap(([keys, text]) => [h("dt", {}, keys), h("dd", {}, text)])),
      h(
        "p",
        { class: "muted" },
        "Press on the timeline for a moment, drag for a range, Ctrl and the wheel zoom. The address of the page holds the view: send it with the file.",
      ),
    );
  }

  private about(): void {
    this.dialog(
      "About this page",
      h(
        "p",
        {},
        `Written by memlab ${this.data.memlab}, with memlab-report html. It is one file, loads nothing and sends nothing.`,
      ),
      h(
        "p",
        {},
        this.data.sources
          ? "It holds source lines around the frames."
          : "It holds no source lines and no arguments of the command (--no-source).",
      ),
      h("p", {}, "memlab is under the Apache License 2.0. In this page are:"),
      ...licenses.map((one) =>
        h(
          "details",
          {},
          h("summary", {}, `${one.name} ${one.version}, ${one.license}`),
          h("pre", { class: "license" }, one.text),
        ),
      ),
    );
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
