// Leaks: what was never freed, place by place, and what grows from step to step.
import { bytes, count, markdownRows, percent, plural } from "../model/format";
import { type PlaceDocument, placeText } from "../model/place_names";
import type { Scene } from "../model/scene";
import { button, h, replace, plainList } from "../ui/dom";
import { figures, Table } from "../ui/table";
import {
  type DeviceDocument,
  deviceName,
  DocumentView,
  type FrameDocument,
  type LabelDocument,
  labelText,
  markdownPart,
  placeElement,
  stackElement,
} from "./document";

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
  labels?: (LabelDocument & { live_count: number; live_bytes: number })[];
}
interface LeaksReport {
  ended_text: string;
  devices: (DeviceDocument & {
    leaked: Counted;
    places: LeakPlace[];
    others: Counted & { places: number };
    suppressed: Counted;
    suppressions: { name: string; reason: string; count: number; bytes: number }[];
  })[];
  steps: {
    kind: string;
    name: string;
    evidence: string | null;
    steps: number;
    verdict: string;
    bytes_per_step: number;
    growing: { place: PlaceDocument; kind: string; bytes_per_step: number }[];
  }[];
}

export class LeaksView extends DocumentView<LeaksReport> {
  readonly id = "leaks";
  readonly title = "Leaks";
  protected readonly document = "leaks";
  protected readonly missing = "The leaks";

  protected override number(report: LeaksReport): number {
    return report.devices.reduce((sum, device) => sum + device.places.length + device.others.places, 0);
  }

  protected build(scene: Scene, found: LeaksReport): (HTMLElement | null)[] {
    const parts: (HTMLElement | null)[] = [];
    for (const step of found.steps)
      parts.push(
        h(
          "section.card",
          h(
            "h2",
            step.evidence
              ? `${plural(step.steps, "step")}, found and not marked (${step.evidence}): `
              : `${plural(step.steps, "step")} by ${step.kind} “${step.name}”: `,
            h("span", { class: `verdict ${step.verdict}` }, step.verdict),
          ),
          step.growing.length === 0
            ? null
            : plainList(step.growing, (one) => [
                h("strong.number", `+${bytes(Math.round(one.bytes_per_step))} a step`),
                placeElement(one.place),
              ]),
        ),
      );
    for (const device of found.devices) {
      parts.push(
        h("h2", deviceName(scene, device)),
        h(
          "p.heading",
          device.leaked.live_count === 0
            ? `Nothing was left allocated ${scene.model.source.last_moment}.`
            : `Never freed: ${bytes(device.leaked.live_bytes)} in ${plural(device.leaked.live_count, "allocation")}. The process ${found.ended_text}.`,
        ),
      );
      if (device.places.length > 0) {
        const chosen = h("section.details", { attributes: { "aria-label": "The chosen place" } });
        chosen.hidden = true;
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
            chosen.hidden = false;
            const close = button("×", () => (chosen.hidden = true), {
              class: "close",
              title: "Close",
              attributes: { "aria-label": "Close" },
            });
            replace(
              chosen,
              close,
              h("h2", placeText(row.place)),
              h("p.muted", `by ${row.api}`),
              row.labels
                ? h(
                    "p",
                    `named ${row.labels.map((label) => `${labelText(label)} (${bytes(label.live_bytes)})`).join(", ")}`,
                  )
                : null,
              stack,
            );
          },
        );
        table.set(device.places);
        parts.push(h("div.beside", h("div", table.element), chosen));
      }
      if (device.others.places > 0)
        parts.push(h("p.note", `${plural(device.others.places, "more place")}: ${bytes(device.others.live_bytes)}`));
      if (device.suppressed.live_count > 0)
        parts.push(
          h(
            "p.note",
            `Not counted as leaks: ${bytes(device.suppressed.live_bytes)} in ${plural(device.suppressed.live_count, "allocation")}`,
          ),
          h(
            "ul.plain.suppressed",
            ...device.suppressions.map((one) =>
              h("li", h("strong.number", bytes(one.bytes)), h("span", `${one.name}: ${one.reason}`)),
            ),
          ),
        );
    }
    return parts;
  }

  protected text(scene: Scene, found: LeaksReport): string[] {
    return found.devices.map((device) =>
      markdownPart(
        [
          `${deviceName(scene, device)}: ${bytes(device.leaked.live_bytes)} never freed`,
          ...device.suppressions.map((one) => `- not counted: ${bytes(one.bytes)}, ${one.name}: ${one.reason}`),
        ].join("\n"),
        ["never freed", "count", "where"],
        device.places
          .slice(0, markdownRows)
          .map((row) => [bytes(row.live_bytes), count(row.live_count), placeText(row.place)]),
        [true, true, false],
      ),
    );
  }
}
