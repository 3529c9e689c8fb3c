// Timelines and what is around them: the curves that are shown, the recording and the GPU, jumps, the selection in words.
import type { Curve, PageData, Recording } from "../data";
import { greatest } from "../model/curves";
import { bytes, duration, signedBytes } from "../model/format";
import type { RecordingModel } from "../model/recording";
import { curveDevice, greatestMoment } from "../model/recording";
import { mostIn, type Scene, type Side } from "../model/scene";
import type { State, Store } from "../state";
import { button, h, replace, replaceControls, select } from "../ui/dom";
import { curveColour } from "../ui/theme";
import { type Shown, Timeline } from "../ui/timeline";

const mostJumps = 500; // of each: peaks and failures, marks

const curveId = (curve: Curve): string => `${curve.device} ${curve.name}`;

export class TimePanel {
  readonly element: HTMLElement;
  private readonly chips = h("div.chips", { attributes: { role: "group", "aria-label": "Curves" } });
  private readonly box = h("div.timelines");
  private readonly selectionText = h("p.selection-text", { attributes: { role: "status" } });
  private readonly jumps = h("div.jumps");
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
  private timelines: Timeline[] = [];
  private timelinesOf: string | null = null;

  constructor(
    private readonly store: Store,
    data: PageData,
  ) {
    this.element = h(
      "section.time",
      { attributes: { "aria-label": "Timeline" } },
      this.box,
      h("div.selection", h("div.picks", this.recording.element, this.device.element, this.jumps), this.selectionText),
    );
    this.recording.options(
      inOrderOfRank(data.recordings).map(([one, i]) => [
        String(i),
        data.mode === "compare"
          ? `${i === 0 ? "before" : "after"}: ${one.name}`
          : one.rank === null || one.name.startsWith(`rank ${one.rank}`)
            ? one.name
            : `rank ${one.rank}: ${one.name}`,
      ]),
    );
    this.recording.element.hidden = data.recordings.length < 2;
  }

  update(scene: Scene): void {
    this.updateTimelines(scene);
    this.updateChips(scene);
    const devices = scene.model.devices.filter((one) => one.index >= 0 || one.peakBytes > 0);
    this.device.options(devices.map((one) => [String(one.index), one.label]));
    this.device.set(String(scene.device));
    this.device.element.hidden = devices.length < 2;
    this.recording.set(String(scene.recording));
    this.updateJumps(scene);
    replace(this.selectionText, describe(scene));
  }

  redraw(): void {
    for (const timeline of this.timelines) timeline.redraw();
  }

  // That of the keys.
  get last(): Timeline | undefined {
    return this.timelines.at(-1);
  }

  // ---- the selection

  selectPeak(scene: Scene): void {
    this.select(scene, null, null);
  }

  selectEnd(scene: Scene): void {
    this.select(scene, scene.model.duration, scene.model.duration);
  }

  selectNextFailure(scene: Scene): void {
    const failures = scene.model.marks.filter((mark) => mark.kind === "oom");
    const next = failures.find((mark) => mark.at > scene.selection[1]) ?? failures[0];
    if (next) this.select(scene, next.at, next.at);
  }

  private select(scene: Scene, from: number | null, to: number | null): void {
    this.store.set(selecting(scene.compared !== null && scene.recording === 0, from, to));
  }

  // ---- the timelines

  private updateTimelines(scene: Scene): void {
    const { compared, state } = scene;
    // Two timelines have one scale.
    const sides: (Side | Scene)[] = compared ? [compared.before, compared.after] : [scene];
    const span = Math.max(...sides.map(({ model }) => model.duration));
    const of = compared ? "both" : String(scene.recording);
    if (this.timelinesOf !== of) {
      this.timelinesOf = of;
      this.timelines = sides.map(({ model }, i) =>
        this.timeline(model, span, compared && (i === 0 ? "before" : "after")),
      );
      replace(this.box, ...this.timelines.map((timeline) => timeline.element));
    }
    const { zoomFrom, zoomTo } = state;
    const zoomed = zoomFrom !== null && zoomTo !== null && zoomTo > zoomFrom;
    const [from, to] = zoomed ? [Math.max(0, zoomFrom), Math.min(span, zoomTo)] : [0, span];
    const curves = sides.map(({ model, device }) => this.shown(model, scene, device));
    const most = compared
      ? Math.max(
          1,
          ...curves
            .flat()
            .filter((one) => one.curve.unit === "bytes")
            .map((one) => greatest(one.curve, from, to)),
        )
      : null;
    this.timelines.forEach((timeline, i) => {
      const shown = [...curves[i]!, ...(compared ? ghost(sides[1 - i]!, i === 0 ? "after" : "before") : [])];
      timeline.update({ shown, from, to, most, selection: sides[i]!.selection });
    });
  }

  private timeline(model: RecordingModel, span: number, side: "before" | "after" | null): Timeline {
    const heading = side
      ? [h("h2.which", side === "before" ? "Before" : "After", h("span.where", model.source.name))]
      : [];
    return new Timeline(
      side ? `Timeline, ${side}` : "Timeline",
      model,
      {
        select: (from, to) => this.store.set(selecting(side === "before", Math.round(from), Math.round(to))),
        zoom: (from, to) => this.store.set({ zoomFrom: from, zoomTo: to }),
      },
      span,
      side === "after" ? heading : [...heading, this.chips],
      side !== null,
    );
  }

  private shown(model: RecordingModel, scene: Scene, device = scene.device): Shown[] {
    const chosen = scene.state.curves;
    return model.curves.flatMap((curve, i) => {
      const own = curve.device === curveDevice(device);
      if (!(chosen ? chosen.includes(curveId(curve)) : curve.default_on && own)) return [];
      return [{ curve, label: curveName(model, curve, own), colour: curveColour(curve.kind, i), ghost: false }];
    });
  }

  private updateChips(scene: Scene): void {
    const { model } = scene;
    const shown = new Set(this.shown(model, scene).map((one) => one.curve));
    replaceControls(
      this.chips,
      ...model.curves.map((curve, i) => {
        const own = curve.device === curveDevice(scene.device);
        if (!own && curve.device >= 0 && !shown.has(curve)) return null;
        if (!model.tellsCurve(curve.device, curve.kind)) return null;
        const chip = button(
          curveName(model, curve, own),
          () => {
            const others = model.curves.filter((one) => shown.has(one) && one !== curve).map(curveId);
            this.store.set({ curves: shown.has(curve) ? others : [...others, curveId(curve)] });
          },
          {
            class: "chip",
            attributes: { "aria-pressed": String(shown.has(curve)) },
            title: curve.exact
              ? ""
              : curve.kind === "device_used"
                ? "sampled, not exact"
                : "bounds where the event log lacks single events",
          },
        );
        chip.style.setProperty("--colour", curveColour(curve.kind, i));
        return chip;
      }),
    );
  }

  private updateJumps(scene: Scene): void {
    const { model } = scene;
    // Peaks and failures are never among those left out.
    const rare = model.marks.filter((mark) => mark.kind === "peak" || mark.kind === "oom").slice(0, mostJumps);
    const named = [...rare, ...model.marks.filter((mark) => mark.kind === "mark").slice(0, mostJumps)].sort(
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
        if (value === "") return;
        const { at } = named[Number(value)]!;
        this.select(scene, at, at);
      },
    );
    replaceControls(
      this.jumps,
      button("Peak", () => this.selectPeak(scene), { title: "The peak of this GPU (P)" }),
      model.marks.some((mark) => mark.kind === "oom")
        ? button("Out of memory", () => this.selectNextFailure(scene), {
            class: "oom",
            title: "The next failure for lack of memory (O)",
          })
        : null,
      button("End", () => this.selectEnd(scene), { title: "The end of the recording (E)" }),
      named.length > 0 ? marks.element : null,
    );
  }
}

function inOrderOfRank(recordings: Recording[]): [Recording, number][] {
  return recordings
    .map((one, i): [Recording, number] => [one, i])
    .sort(([a, i], [b, k]) => (a.rank ?? Infinity) - (b.rank ?? Infinity) || i - k);
}

// What the state becomes. In a comparison the recording before has a selection of its own; maps are of the other.
function selecting(before: boolean, from: number | null, to: number | null): Partial<State> {
  return before ? { beforeFrom: from, beforeTo: to } : { from, to, map: null };
}

// The other recording's curve, to compare by.
function ghost({ model, device }: Side | Scene, side: "before" | "after"): Shown[] {
  const curve = model.curves.find((one) => one.device === curveDevice(device) && one.kind === "allocated");
  return curve ? [{ curve, label: `allocated ${side}`, colour: curveColour("device_used", 0), ghost: true }] : [];
}

// "allocated" of "GPU 0: allocated" where the GPU is the one that is looked at.
function curveName(model: RecordingModel, curve: Curve, plain: boolean): string {
  const prefix = `${model.device(curve.device)?.short ?? ""}: `;
  return plain && curve.name.startsWith(prefix) ? curve.name.slice(prefix.length) : curve.name;
}

function describe(scene: Scene): string {
  const { model, selection, totals } = scene;
  if (scene.compared) {
    const [before, after] = [scene.compared.before, scene.compared.after].map((side) => ({
      held: side.totals[side.moment] ?? 0,
      at: duration(side.model.timeOf(side.moment)),
    })) as [{ held: number; at: string }, { held: number; at: string }];
    return `Before ${bytes(before.held)} at ${before.at}, after ${bytes(after.held)} at ${after.at}: ${signedBytes(after.held - before.held)}`;
  }
  const held = (moment: number) => totals[moment] ?? 0;
  if (scene.range) {
    const peak = greatestMoment(totals, scene.begin, scene.end);
    const most = Math.max(held(peak), mostIn(model, scene.device, selection) ?? 0);
    const when = most === held(peak) ? ` at ${duration(model.timeOf(peak))}` : "";
    return `${duration(selection[0])} to ${duration(selection[1])} (${duration(selection[1] - selection[0])}): ${bytes(held(scene.begin))} to ${bytes(held(scene.end))}, ${signedBytes(held(scene.end) - held(scene.begin))}; most ${bytes(most)}${when}`;
  }
  const exact = model.timeOf(scene.shown);
  const near =
    Math.abs(exact - selection[0]) > Math.max(1, model.duration / 1e6)
      ? ` (exact at ${duration(exact)}, the nearest moment)`
      : "";
  return `${scene.usual ? "Peak at" : "At"} ${duration(selection[0])}${near}: ${bytes(held(scene.shown))} allocated`;
}
