// The recording itself: what ran, its peaks, where the memory went, what is to be known about the figures.
import { bytes, count, duration, fixed, markdownTable, percent, plural } from "../model/format";
import type { PlaceDocument } from "../model/place_names";
import { figure, h, replace, plainList } from "../ui/dom";
import { smallTable } from "../ui/table";
import { deviceName, placeElement } from "./document";
import { type HeldDevice, heldTables, type ScopeRow, scopesTable, type Step, stepsTable } from "./summary_tables";
import type { Scene } from "../model/scene";
import type { View } from "./view";

interface SummaryDevice extends HeldDevice {
  allocator?: string | null;
  index: number;
  name: string;
  total_bytes: number | null;
  limit_bytes: number | null;
  curves: Record<string, { peak_bytes: number; peak_time_ns: number; at_end_bytes: number } | null>;
  reserve?: { text: string } | null;
  kind_curves?: Record<string, { peak_bytes: number; peak_time_ns: number; at_end_bytes: number }>;
  waterfall: Record<string, number | null | Record<string, number>> | null;
  fragmentation: { at_peak: number | null; external: number | null; internal: number | null } | null;
  // What ran at the allocated peak, where kernels were recorded.
  kernels_at_peak?: {
    from_ns: number;
    to_ns: number;
    kernels: { name: string; function: string | null; count: number; busy_ns: number }[];
    other: { count: number; busy_ns: number };
  };
}
interface Coverage {
  audited: boolean;
  cupti: string | null;
  driver_count: number;
  driver_bytes: number;
  bypassed_count: number;
  bypassed_bytes: number;
  bypassed: { api: string | null; kind: string; count: number; bytes: number; place: PlaceDocument | null }[];
}
interface Summary {
  process: { executable: string | null; start_wall_ns: number };
  devices: SummaryDevice[];
  warnings: unknown[];
  coverage: Coverage;
  scopes: ScopeRow[];
  steps: Step[];
}

const curveHints = new Map(
  Object.entries({
    allocated: "what the program holds",
    reserved: "taken from the driver",
    requested: "before rounding",
    active: "allocated + frees pending",
    device_used: "the whole GPU, sampled",
    managed: "migrates between host and GPU, in no other row",
    pinned: "host memory, in no other row",
  }),
);

// A framework's cache tells what it handed out and what it reserved.
function curvesOf(scene: Scene, device: SummaryDevice): [string, SummaryDevice["curves"][string]][] {
  return [
    ...Object.entries(device.curves).filter(
      ([name, curve]) => curve !== null && scene.model.tellsCurve(device.index, name),
    ),
    ...Object.entries(device.kind_curves ?? {}),
  ];
}

function hintOf(device: SummaryDevice, name: string): string {
  if (device.allocator && name === "allocated") return "what it handed out";
  if (device.allocator && name === "reserved") return `reserved by ${device.allocator}'s cache`;
  return curveHints.get(name) ?? "";
}

// The steps from what the GPU shows to what the program asked for.
const steps: [key: string, name: string, part: boolean][] = [
  ["device_used_bytes", "device used", false],
  ["remainder_bytes", "everything else on the GPU", true],
  ["reserved_bytes", "reserved", false],
  ["cached_bytes", "cached for reuse", true],
  ["active_bytes", "active", false],
  ["pending_bytes", "frees pending", true],
  ["allocated_bytes", "allocated", false],
  ["rounding_bytes", "rounding", true],
  ["requested_bytes", "requested", false],
];

// What a framework's cache tells of them.
const ofCache = new Set(["reserved_bytes", "cached_bytes", "allocated_bytes"]);

export class RecordingView implements View {
  readonly id = "recording";
  readonly title = "Summary";
  readonly element = h("div.view.document");

  private summary(scene: Scene): Summary | null {
    return (scene.model.source.documents.summary as Summary | undefined) ?? null;
  }

  update(scene: Scene): void {
    const source = scene.model.source;
    const summary = this.summary(scene);
    replace(
      this.element,
      h("h2", source.name),
      h(
        "dl.figures",
        figure("outcome", source.ended || null),
        figure("took", duration(source.duration_ns)),
        figure("process", `pid ${source.pid} on ${source.host}`),
        figure("rank", source.rank === null ? null : String(source.rank)),
        figure("events", count(source.events)),
        figure("call sites", count(scene.model.sites.count)),
        figure("moments", count(scene.model.moments.length)),
        figure("recorded by", `memlab ${scene.data.memlab}`),
      ),
      source.command.length > 0
        ? h("pre.command", { attributes: { tabindex: "0", "aria-label": "The command" } }, source.command.join(" "))
        : null,
      h("p.muted.path", source.path),
      ...source.notes.map((note) => h("p.note", note)),
      ...(summary?.devices ?? []).map((device) => this.device(scene, device)),
      stepsTable(summary?.steps ?? []),
      scopesTable(summary?.scopes ?? []),
      summary ? this.audit(summary.coverage) : null,
    );
  }

  // What CUPTI saw of the driver, against what was recorded.
  private audit(coverage: Coverage): HTMLElement | null {
    if (!coverage.audited && coverage.bypassed_count === 0) return null;
    const driver = `${plural(coverage.driver_count, "allocation")} of the driver, ${bytes(coverage.driver_bytes)}`;
    return h(
      "section",
      h("h3", "Audit"),
      h(
        "p",
        { class: coverage.bypassed_count > 0 ? "note" : "" },
        coverage.bypassed_count > 0
          ? `${driver}: ${plural(coverage.bypassed_count, "allocation")} of ${bytes(coverage.bypassed_bytes)} bypassed memlab`
          : `${driver}: memlab made or recorded each of them`,
      ),
      plainList(coverage.bypassed, (one) => [
        h("span.number", bytes(one.bytes)),
        h(
          "span",
          `${one.api ?? "(unknown function)"} [${one.kind}], ${plural(one.count, "call")} `,
          one.place ? placeElement(one.place) : null,
        ),
      ]),
      coverage.cupti === null ? null : h("p.muted.path", `by ${coverage.cupti}`),
    );
  }

  private kernels(device: SummaryDevice): HTMLElement | null {
    const ran = device.kernels_at_peak;
    if (ran === undefined || ran.kernels.length === 0) return null;
    const row = (name: string, one: { count: number; busy_ns: number }): [string, ...string[]] => [
      name,
      duration(one.busy_ns),
      count(one.count),
    ];
    const rows = ran.kernels.map((kernel) =>
      row((kernel.function ?? kernel.name).replaceAll("(anonymous namespace)::", ""), kernel),
    );
    return h(
      "div",
      h("h4", `What ran at the allocated peak, within ${duration(ran.to_ns - ran.from_ns)}`),
      smallTable(["kernel", "busy", "times"], ran.other.count > 0 ? [...rows, row("all others", ran.other)] : rows),
    );
  }

  private device(scene: Scene, device: SummaryDevice): HTMLElement {
    const waterfall = device.waterfall;
    const value = (key: string): number | null =>
      typeof waterfall?.[key] === "number" ? (waterfall[key] as number) : null;
    const most = Math.max(1, ...steps.map(([key]) => value(key) ?? 0));
    let level = most;
    const rows = waterfall
      ? steps.flatMap(([key, name, part]) => {
          const size = value(key);
          if (size === null || (part && size === 0) || (device.allocator && !ofCache.has(key))) return [];
          if (!part) level = size;
          const row = h(
            "li",
            { class: part ? "part" : "" },
            h("span.name", name),
            h("span.track", h("span.fill")),
            h("span.number", part ? `− ${bytes(size)}` : bytes(size)),
          );
          row.style.setProperty("--from", `${part ? (100 * Math.max(0, level - size)) / most : 0}%`);
          row.style.setProperty("--share", `${(100 * size) / most}%`);
          return [row];
        })
      : [];
    const curves = curvesOf(scene, device);
    const part = (share: number | null | undefined, text: string) =>
      share === null || share === undefined ? null : h("p.muted", `${fixed(100 * share, 1)}% ${text}`);
    return h(
      "section",
      h(
        "h3",
        deviceName(scene, device),
        device.total_bytes ? h("span.where", bytes(device.total_bytes)) : null,
        device.limit_bytes ? h("span.where", `limited to ${bytes(device.limit_bytes)}`) : null,
      ),
      device.reserve ? h("p", { class: "advice" }, device.reserve.text) : null,
      smallTable(
        ["", "peak", "at", scene.model.source.last_moment, ""],
        curves.map(([name, curve]) => [
          name.replaceAll("_", " "),
          bytes(curve!.peak_bytes),
          duration(curve!.peak_time_ns),
          bytes(curve!.at_end_bytes),
          h("td.muted", hintOf(device, name)),
        ]),
      ),
      rows.length > 0 ? h("div", h("h4", "Where it went at the allocated peak"), h("ul.waterfall", ...rows)) : null,
      part(device.fragmentation?.at_peak, "of the reserved peak lies above the active peak: cached"),
      part(device.fragmentation?.external, "of the free memory lies outside its largest block: external fragmentation"),
      part(device.fragmentation?.internal, "of the allocated peak was not asked for: internal fragmentation, rounding"),
      ...heldTables(device, scene.model.source.last_moment),
      this.kernels(device),
    );
  }

  markdown(scene: Scene): string {
    const source = scene.model.source;
    const devices = (this.summary(scene)?.devices ?? []).map(
      (device) =>
        `${deviceName(scene, device)}\n\n${markdownTable(
          ["", "peak", "share", "at", source.last_moment],
          curvesOf(scene, device).map(([name, curve]) => [
            name.replaceAll("_", " "),
            bytes(curve!.peak_bytes),
            device.total_bytes ? percent(curve!.peak_bytes, device.total_bytes) : "",
            duration(curve!.peak_time_ns),
            bytes(curve!.at_end_bytes),
          ]),
          [false, true, true, true, true],
        )}`,
    );
    return [
      `${source.name} (pid ${source.pid}): ${source.ended}, ${duration(source.duration_ns)}, ${plural(source.events, "event")}`,
      ...devices,
    ].join("\n\n");
  }
}
