// What `memlab-report --json` says, as it is: leaks, inefficiencies, the ledger, failures. Figures are those of the
// documents, so they equal the command's.
import type { Recording } from "../data";
import { basename, bytes, count, duration, markdownTable, percent, plural } from "../model/format";
import { type PlaceDocument, placeName, placeText, placeWhere } from "../model/place_names";
import { button, h, replace } from "../ui/dom";
import { figures, Table } from "../ui/table";
import type { Scene, Surroundings, View } from "./view";

type FrameDocument = Omit<PlaceDocument, "through"> & { inlined: boolean; python: boolean };

export function placeElement(place: PlaceDocument, short = false): HTMLElement {
  return h(
    "span",
    { class: "place", title: placeText(place) },
    h("span", { class: "function" }, placeName(place)),
    h("span", { class: "where" }, short ? basename(placeWhere(place)) : placeWhere(place)),
    place.through ? h("span", { class: "where via" }, `via ${place.through}`) : null,
  );
}

function stackElement(stack: FrameDocument[] | undefined, label = "Call stack"): HTMLElement | null {
  if (!stack || stack.length === 0) return null;
  return h(
    "details",
    { class: "stack" },
    h("summary", {}, `${label}, innermost first`),
    h(
      "ol",
      {},
      ...stack.map((frame) =>
        h(
          "li",
          {},
          h("span", { class: "function" }, placeName({ ...frame, through: null })),
          " ",
          h("span", { class: "where" }, placeWhere({ ...frame, through: null })),
        ),
      ),
    ),
  );
}

const figure = (name: string, value: string | null) =>
  value === null ? null : h("div", {}, h("dt", {}, name), h("dd", {}, value));

// A view of one document, which is one report of a command's. It does not depend on the selection: it is built once for
// each recording.
abstract class DocumentView<Report> implements View {
  abstract readonly id: string;
  abstract readonly title: string;
  readonly element = h("div", { class: "view document" });
  private shown: Report | null | undefined;

  protected constructor(
    protected readonly around: Surroundings,
    private readonly key: keyof Recording["documents"],
    private readonly missing: string,
  ) {}

  protected abstract build(scene: Scene, report: Report): (HTMLElement | null)[];
  protected abstract text(scene: Scene, report: Report): string;
  protected number(_report: Report): number | null {
    return null;
  }

  private report(scene: Scene): Report | null {
    const document = scene.model.source.documents[this.key];
    return typeof document === "object" && document !== null ? (document as Report) : null;
  }

  count(scene: Scene): number | null {
    const report = this.report(scene);
    return report && this.number(report);
  }

  update(scene: Scene): void {
    const report = this.report(scene);
    if (this.shown === report) return;
    this.shown = report;
    replace(
      this.element,
      ...(report
        ? this.build(scene, report)
        : [
            h(
              "p",
              { class: "heading" },
              `${this.missing} of this recording are not known: they need its event log (*.memlog).`,
            ),
          ]),
    );
  }

  markdown(scene: Scene): string {
    const report = this.report(scene);
    return report ? this.text(scene, report) : (this.element.textContent ?? "");
  }
}

// ---- leaks

interface Counted {
  bytes: number;
  count: number;
  live_bytes: number;
  live_count: number;
}
interface LeakPlace extends Counted {
  place: PlaceDocument;
  kind: string;
  api: string;
  stack: FrameDocument[];
  labels?: { name: string; live_count: number; live_bytes: number }[];
}
interface LeaksReport {
  ended_text: string;
  devices: {
    index: number;
    name: string;
    leaked: Counted;
    places: LeakPlace[];
    others: Counted & { places: number };
    suppressed: Counted;
  }[];
  steps: {
    kind: string;
    name: string;
    steps: number;
    verdict: string;
    bytes_per_step: number;
    growing: { place: PlaceDocument; kind: string; bytes_per_step: number }[];
  }[];
}

export class LeaksView extends DocumentView<LeaksReport> {
  readonly id = "leaks";
  readonly title = "Leaks";

  constructor(around: Surroundings) {
    super(around, "leaks", "The leaks");
  }

  protected override number(report: LeaksReport): number {
    return report.devices.reduce((sum, device) => sum + device.places.length + device.others.places, 0);
  }

  protected build(scene: Scene, found: LeaksReport): (HTMLElement | null)[] {
    const parts: (HTMLElement | null)[] = [];
    for (const step of found.steps)
      parts.push(
        h(
          "section",
          { class: "card" },
          h(
            "h2",
            {},
            `${plural(step.steps, "step")} by ${step.kind} “${step.name}”: `,
            h("span", { class: `verdict ${step.verdict}` }, step.verdict),
          ),
          step.growing.length === 0
            ? null
            : h(
                "ul",
                { class: "plain" },
                ...step.growing.map((one) =>
                  h(
                    "li",
                    {},
                    h("strong", { class: "number" }, `+${bytes(Math.round(one.bytes_per_step))} a step`),
                    placeElement(one.place),
                  ),
                ),
              ),
        ),
      );
    for (const device of found.devices) {
      parts.push(
        h("h2", {}, `${scene.model.device(device.index)?.label ?? device.name}`),
        h(
          "p",
          { class: "heading" },
          device.leaked.live_count === 0
            ? "Nothing was left allocated at the end."
            : `Never freed: ${bytes(device.leaked.live_bytes)} in ${plural(device.leaked.live_count, "allocation")}. The process ${found.ended_text}.`,
        ),
      );
      if (device.places.length > 0) {
        const chosen = h("div");
        const table = new Table<LeakPlace>(
          `Leaks of ${device.name}`,
          [
            figures<LeakPlace>("live", "never freed", 110, (row) => row.live_bytes, bytes, { low: false }),
            figures<LeakPlace>(
              "share",
              "share",
              72,
              (row) => row.live_bytes,
              (value) => percent(value, device.leaked.live_bytes),
            ),
            figures<LeakPlace>("count", "count", 80, (row) => row.live_count, count, { low: false }),
            {
              id: "where",
              head: "where",
              width: "minmax(0, 1fr)",
              cell: (row) => placeElement(row.place, true),
              text: (row) => placeText(row.place),
              sort: (row) => placeText(row.place),
            },
            { id: "kind", head: "kind", width: "110px", low: true, cell: (row) => row.kind, sort: (row) => row.kind },
            figures<LeakPlace>("bytes", "in the run", 110, (row) => row.bytes, bytes),
          ],
          "live",
          (row) => {
            const stack = stackElement(row.stack);
            stack?.setAttribute("open", "");
            replace(
              chosen,
              h(
                "section",
                { class: "details" },
                h("h3", {}, placeText(row.place)),
                h("p", { class: "muted" }, `by ${row.api}`),
                row.labels
                  ? h(
                      "p",
                      {},
                      `named ${row.labels.map((label) => `“${label.name}” (${bytes(label.live_bytes)})`).join(", ")}`,
                    )
                  : null,
                stack,
              ),
            );
          },
        );
        table.set(device.places);
        parts.push(table.element, chosen);
      }
      if (device.others.places > 0)
        parts.push(
          h(
            "p",
            { class: "note" },
            `${plural(device.others.places, "more place")}: ${bytes(device.others.live_bytes)}`,
          ),
        );
      if (device.suppressed.live_count > 0)
        parts.push(
          h(
            "p",
            { class: "note" },
            `Suppressed: ${bytes(device.suppressed.live_bytes)} in ${plural(device.suppressed.live_count, "allocation")}`,
          ),
        );
    }
    return parts;
  }

  protected text(scene: Scene, found: LeaksReport): string {
    return found.devices
      .map(
        (device) =>
          `${scene.model.device(device.index)?.label ?? device.name}: ${bytes(device.leaked.live_bytes)} never freed\n\n${markdownTable(
            ["never freed", "count", "where"],
            device.places
              .slice(0, 20)
              .map((row) => [bytes(row.live_bytes), count(row.live_count), placeText(row.place)]),
            [true, true, false],
          )}`,
      )
      .join("\n\n");
  }
}

// ---- inefficiencies

interface Finding {
  pattern: string;
  confidence: string;
  place: PlaceDocument;
  kind: string;
  api: string;
  count: number;
  bytes: number;
  saves: { peak_bytes: number; peak_is_exact: boolean; reserved_bytes: number; end_bytes: number; calls: number };
  what: string;
  change: string;
  stack: FrameDocument[];
}
interface InefficienciesReport {
  steps: string | null;
  notes: string[];
  devices: {
    index: number;
    name: string;
    allocated_peak_bytes: number;
    reserved_peak_bytes: number;
    findings: Finding[];
    collected: { count: number; bytes: number; at_peak_bytes: number };
  }[];
}

export class InefficienciesView extends DocumentView<InefficienciesReport> {
  readonly id = "inefficiencies";
  readonly title = "Inefficiencies";

  constructor(around: Surroundings) {
    super(around, "inefficiencies", "The inefficiencies");
  }

  protected override number(report: InefficienciesReport): number {
    return report.devices.reduce((sum, device) => sum + device.findings.length, 0);
  }

  private saves(finding: Finding, device: InefficienciesReport["devices"][number]): string {
    const { saves } = finding;
    if (saves.peak_bytes > 0)
      return `saves ${saves.peak_is_exact ? "" : "up to "}${bytes(saves.peak_bytes)} of the peak, ${percent(saves.peak_bytes, device.allocated_peak_bytes)}`;
    if (saves.reserved_bytes > 0)
      return `saves up to ${bytes(saves.reserved_bytes)} of the reserved peak, ${percent(saves.reserved_bytes, device.reserved_peak_bytes)}`;
    if (saves.calls > 0) return `saves ${plural(saves.calls, "call")}`;
    return saves.end_bytes > 0 ? `leaves ${bytes(saves.end_bytes)} at the end` : "";
  }

  protected build(scene: Scene, found: InefficienciesReport): (HTMLElement | null)[] {
    return [
      ...found.devices.flatMap((device) => [
        h("h2", {}, scene.model.device(device.index)?.label ?? device.name),
        h(
          "p",
          { class: "heading" },
          `Peak: ${bytes(device.allocated_peak_bytes)} allocated, ${bytes(device.reserved_peak_bytes)} reserved. ${
            device.findings.length === 0
              ? "Nothing was found."
              : `${plural(device.findings.length, "finding")}; savings do not add up.`
          }`,
        ),
        device.collected.count > 0
          ? h(
              "p",
              { class: "note" },
              `Held until Python's garbage collector ran: ${plural(device.collected.count, "allocation")} of ${bytes(device.collected.bytes)} in all, ${bytes(device.collected.at_peak_bytes)} of the peak.`,
            )
          : null,
        ...device.findings.map((finding, i) =>
          h(
            "section",
            { class: "card finding" },
            h(
              "h3",
              {},
              `${i + 1}. ${finding.pattern.replaceAll("_", " ")}`,
              h("span", { class: `confidence ${finding.confidence}` }, finding.confidence),
            ),
            h("p", { class: "saves" }, this.saves(finding, device)),
            h("p", {}, placeElement(finding.place)),
            h("p", {}, finding.what),
            h("p", { class: "advice" }, finding.change),
            stackElement(finding.stack, "Evidence: call stack"),
          ),
        ),
      ]),
      ...found.notes.map((note) => h("p", { class: "note" }, note)),
    ];
  }

  protected text(scene: Scene, found: InefficienciesReport): string {
    return found.devices
      .map(
        (device) =>
          `${scene.model.device(device.index)?.label ?? device.name}\n\n${markdownTable(
            ["pattern", "confidence", "saves", "where", "what", "change"],
            device.findings.map((finding) => [
              finding.pattern.replaceAll("_", " "),
              finding.confidence,
              this.saves(finding, device),
              placeText(finding.place),
              finding.what,
              finding.change,
            ]),
            [false, false, false, false, false, false],
          )}`,
      )
      .join("\n\n");
  }
}

// ---- ledger

interface LedgerRow {
  what: string | null;
  place: PlaceDocument | null;
  api: string | null;
  bytes: number;
  count: number;
  uncertain: boolean;
  with_earlier: boolean;
}
interface LedgerMoment {
  time_ns: number;
  used_bytes: number;
  rest_bytes: number;
  others_in_rows_bytes: number;
  groups: { title: string; bytes: number; rows: LedgerRow[] }[];
}
interface LedgerReport {
  devices: {
    index: number;
    name: string;
    moments: Record<string, LedgerMoment | null>;
    not_measured: number;
    advice: string[];
  }[];
}

export class LedgerView extends DocumentView<LedgerReport> {
  readonly id = "ledger";
  readonly title = "Ledger";

  constructor(around: Surroundings) {
    super(around, "ledger", "The ledger's figures");
  }

  protected build(scene: Scene, found: LedgerReport): (HTMLElement | null)[] {
    if (found.devices.length === 0)
      return [
        h(
          "p",
          { class: "heading" },
          "No ledger was kept in this recording (MEMLAB_LEDGER): what took memory beside the allocations is not known.",
        ),
      ];
    return found.devices.flatMap((device) => [
      h("h2", {}, scene.model.device(device.index)?.label ?? device.name),
      ...Object.entries(device.moments).flatMap(([name, moment]) =>
        moment === null || (name !== "peak" && moment.time_ns === device.moments["peak"]?.time_ns)
          ? []
          : [
              h(
                "h3",
                {},
                `${name === "peak" ? "At the sampled peak" : "At the end"}, ${duration(moment.time_ns)}: ${bytes(moment.used_bytes)} in use on the GPU`,
              ),
              h(
                "div",
                { class: "ledger" },
                ...moment.groups.map((group) => this.group(group.title, group.bytes, moment.used_bytes, group.rows)),
                this.group(
                  "the rest: other processes, and what was not measured",
                  moment.rest_bytes,
                  moment.used_bytes,
                  [],
                ),
              ),
              moment.others_in_rows_bytes > 0
                ? h(
                    "p",
                    { class: "note" },
                    `At least ${bytes(moment.others_in_rows_bytes)} of this process's rows are others': they grew while it was measured.`,
                  )
                : null,
            ],
      ),
      device.not_measured > 0
        ? h(
            "p",
            { class: "note" },
            `${plural(device.not_measured, "call")} came when the time for measuring was spent.`,
          )
        : null,
      ...device.advice.map((advice) => h("p", { class: "advice" }, advice)),
    ]);
  }

  private group(name: string, size: number, whole: number, rows: LedgerRow[]): HTMLElement {
    const head = h(
      "summary",
      {},
      h("span", { class: "number" }, bytes(size)),
      h("span", { class: "share" }, percent(size, whole)),
      h("span", { class: "name" }, name),
    );
    head.style.setProperty("--share", `${whole > 0 ? (100 * size) / whole : 0}%`);
    if (rows.length === 0) head.classList.add("bare");
    return h(
      "details",
      {},
      head,
      h(
        "ul",
        { class: "plain" },
        ...rows
          .slice(0, 100)
          .map((row) =>
            h(
              "li",
              {},
              h("span", { class: "number" }, bytes(row.bytes)),
              h(
                "span",
                {},
                row.what ?? "",
                row.place ? placeElement(row.place) : null,
                row.count > 1 ? h("span", { class: "muted" }, ` ${plural(row.count, "call")}`) : null,
                row.with_earlier ? h("span", { class: "muted" }, " with what was in use before") : null,
                row.uncertain ? h("span", { class: "muted" }, " uncertain: other memory changed meanwhile") : null,
              ),
            ),
          ),
      ),
    );
  }

  protected text(scene: Scene, found: LedgerReport): string {
    return found.devices
      .map((device) => {
        const moment = device.moments["peak"];
        return moment
          ? `${scene.model.device(device.index)?.label ?? device.name}: ${bytes(moment.used_bytes)} in use at ${duration(moment.time_ns)}\n\n${markdownTable(
              ["bytes", "share", "what"],
              [
                ...moment.groups.map((group) => [
                  bytes(group.bytes),
                  percent(group.bytes, moment.used_bytes),
                  group.title,
                ]),
                [bytes(moment.rest_bytes), percent(moment.rest_bytes, moment.used_bytes), "the rest"],
              ],
              [true, true, false],
            )}`
          : "";
      })
      .join("\n\n");
  }
}

// ---- out of memory

interface Failure {
  time_ns: number;
  device: number;
  thread: number;
  thread_name: string | null;
  api: string;
  kind: string;
  requested_bytes: number;
  device_free_bytes: number | null;
  device_total_bytes: number | null;
  largest_free_block_bytes: number | null;
  error: number;
  current: { allocated_bytes: number; active_bytes: number; reserved_bytes: number } | null;
  place: PlaceDocument;
  explanation: string | null;
  holders: {
    count: number;
    bytes: number;
    places: {
      bytes: number;
      count: number;
      share: number;
      place: PlaceDocument;
      labels?: { name: string; bytes: number }[];
    }[];
  } | null;
  stack?: FrameDocument[];
}

interface FailuresReport {
  oom_count: number;
  ooms: Failure[];
}

export class FailuresView extends DocumentView<FailuresReport> {
  readonly id = "out-of-memory";
  readonly title = "Out of memory";

  constructor(around: Surroundings) {
    super(around, "oom", "The failures");
  }

  protected override number(report: FailuresReport): number {
    return report.oom_count;
  }

  protected build(scene: Scene, found: FailuresReport): (HTMLElement | null)[] {
    if (found.oom_count === 0) return [h("p", { class: "heading" }, "No allocation failed for lack of memory.")];
    const size = (value: number | null | undefined) => (value === null || value === undefined ? null : bytes(value));
    return [
      h(
        "p",
        { class: "heading" },
        `${plural(found.oom_count, "allocation")} failed for lack of memory${found.ooms.length < found.oom_count ? `; the first ${count(found.ooms.length)} are here` : ""}.`,
      ),
      ...found.ooms.map((failure, i) =>
        h(
          "section",
          { class: "card failure" },
          h(
            "h2",
            {},
            `${i + 1}. ${bytes(failure.requested_bytes)} at ${duration(failure.time_ns)} on ${scene.model.device(failure.device)?.short ?? `GPU ${failure.device}`}`,
            button("Show this moment", () =>
              this.around.store.set({
                from: failure.time_ns,
                to: failure.time_ns,
                device: failure.device,
                view: "holders",
              }),
            ),
          ),
          h(
            "p",
            {},
            placeElement(failure.place),
            h(
              "span",
              { class: "muted" },
              ` ${failure.api} (${failure.kind}), error ${failure.error}, thread ${failure.thread}${failure.thread_name ? ` (${failure.thread_name})` : ""}`,
            ),
          ),
          failure.explanation ? h("p", { class: "explanation" }, failure.explanation) : null,
          h(
            "dl",
            { class: "figures" },
            figure("asked for", bytes(failure.requested_bytes)),
            figure("free on the device", size(failure.device_free_bytes)),
            figure("largest free block", size(failure.largest_free_block_bytes)),
            figure("on the device", size(failure.device_total_bytes)),
            figure("allocated", size(failure.current?.allocated_bytes)),
            figure("reserved", size(failure.current?.reserved_bytes)),
            figure(
              "not in use",
              failure.current ? bytes(failure.current.reserved_bytes - failure.current.active_bytes) : null,
            ),
          ),
          failure.holders
            ? h(
                "div",
                {},
                h(
                  "h3",
                  {},
                  `Held at that moment: ${bytes(failure.holders.bytes)} in ${plural(failure.holders.count, "allocation")}`,
                ),
                h(
                  "ul",
                  { class: "plain" },
                  ...failure.holders.places
                    .slice(0, 20)
                    .map((holder) =>
                      h(
                        "li",
                        {},
                        h("span", { class: "number" }, bytes(holder.bytes)),
                        h("span", { class: "share" }, percent(holder.bytes, failure.holders!.bytes)),
                        placeElement(holder.place),
                        holder.labels
                          ? h(
                              "span",
                              { class: "muted" },
                              ` named ${holder.labels.map((label) => `“${label.name}”`).join(", ")}`,
                            )
                          : null,
                      ),
                    ),
                ),
              )
            : null,
          stackElement(failure.stack),
        ),
      ),
    ];
  }

  protected text(_scene: Scene, found: FailuresReport): string {
    return found.ooms
      .map(
        (failure, i) =>
          `Out of memory ${i + 1}: ${bytes(failure.requested_bytes)} at ${duration(failure.time_ns)}, ${placeText(failure.place)}\n\n${failure.explanation ?? ""}\n\n${markdownTable(
            ["bytes", "count", "where"],
            (failure.holders?.places ?? [])
              .slice(0, 20)
              .map((holder) => [bytes(holder.bytes), count(holder.count), placeText(holder.place)]),
            [true, true, false],
          )}`,
      )
      .join("\n\n");
  }
}
