// The ledger: what every byte in use on the GPU is for.
import { bytes, duration, percent, plural } from "../model/format";
import type { PlaceDocument } from "../model/place_names";
import type { Scene } from "../model/scene";
import { h, plainList } from "../ui/dom";
import { type DeviceDocument, deviceName, DocumentView, markdownPart, placeElement } from "./document";

interface LedgerRow {
  what: string | null;
  place: PlaceDocument | null;
  api: string | null;
  bytes: number;
  count: number;
  uncertain: boolean;
  with_earlier: boolean;
  estimated: boolean;
}
interface LedgerMoment {
  time_ns: number;
  used_bytes: number;
  rest_bytes: number;
  others_in_rows_bytes: number;
  groups: { title: string; bytes: number; rows: LedgerRow[] }[];
}
interface LedgerReport {
  devices: (DeviceDocument & {
    moments: Record<string, LedgerMoment | null>;
    not_measured: number;
    advice: string[];
  })[];
}

export class LedgerView extends DocumentView<LedgerReport> {
  readonly id = "ledger";
  readonly title = "Ledger";
  protected readonly document = "ledger";
  protected readonly missing = "The ledger's figures";

  protected build(scene: Scene, found: LedgerReport): (HTMLElement | null)[] {
    if (found.devices.length === 0)
      return [
        h(
          "p.heading",
          "No ledger was kept in this recording (MEMLAB_LEDGER): what took memory beside the allocations is not known.",
        ),
      ];
    return found.devices.flatMap((device) => [
      h("h2", deviceName(scene, device)),
      ...Object.entries(device.moments).flatMap(([name, moment]) =>
        moment === null || (name !== "peak" && moment.time_ns === device.moments["peak"]?.time_ns)
          ? []
          : [
              h(
                "h3",
                `${name === "peak" ? "At the sampled peak" : "At the end"}, ${duration(moment.time_ns)}: ${bytes(moment.used_bytes)} in use on the GPU`,
              ),
              h(
                "div.ledger",
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
                    "p.note",
                    `At least ${bytes(moment.others_in_rows_bytes)} in this process's rows belongs to other processes, which grew while calls were measured.`,
                  )
                : null,
            ],
      ),
      device.not_measured > 0
        ? h("p.note", `${plural(device.not_measured, "call")} not measured: time budget used up.`)
        : null,
      ...device.advice.map((advice) => h("p.advice", advice)),
    ]);
  }

  private group(name: string, size: number, whole: number, rows: LedgerRow[]): HTMLElement {
    const head = h(
      "summary",
      h("span.number", bytes(size)),
      h("span.share", percent(size, whole)),
      h("span.name", name),
    );
    head.style.setProperty("--share", `${whole > 0 ? (100 * size) / whole : 0}%`);
    if (rows.length === 0) head.classList.add("bare");
    return h(
      "details",
      head,
      plainList(rows.slice(0, 100), (row) => [
        h("span.number", bytes(row.bytes)),
        h(
          "span",
          row.what ?? "",
          row.place ? placeElement(row.place) : null,
          row.estimated || row.count > 1 ? h("span.muted", ` ${plural(row.count, "call")}`) : null,
          row.estimated ? h("span.muted", ", estimated by the mean of the measured ones") : null,
          row.with_earlier ? h("span.muted", " includes what was in use before") : null,
          row.uncertain ? h("span.muted", " uncertain: other memory changed meanwhile") : null,
        ),
      ]),
    );
  }

  protected text(scene: Scene, found: LedgerReport): string[] {
    return found.devices.map((device) => {
      const moment = device.moments["peak"];
      if (!moment) return "";
      const row = (size: number, what: string) => [bytes(size), percent(size, moment.used_bytes), what];
      return markdownPart(
        `${deviceName(scene, device)}: ${bytes(moment.used_bytes)} in use at ${duration(moment.time_ns)}`,
        ["bytes", "share", "what"],
        [...moment.groups.map((group) => row(group.bytes, group.title)), row(moment.rest_bytes, "the rest")],
        [true, true, false],
      );
    });
  }
}
