// Inefficiencies: where memory is wasted, how much, and what to change.
import { bytes, percent, plural } from "../model/format";
import { type PlaceDocument, placeText } from "../model/place_names";
import type { Scene } from "../model/scene";
import { h } from "../ui/dom";
import {
  type DeviceDocument,
  deviceName,
  DocumentView,
  type FrameDocument,
  markdownPart,
  placeElement,
  stackElement,
} from "./document";

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
  looked_for: string[];
  devices: (DeviceDocument & {
    allocated_peak_bytes: number;
    reserved_peak_bytes: number;
    findings: Finding[];
    reserve: { text: string } | null;
    collected: { count: number; bytes: number; at_peak_bytes: number };
  })[];
}

// As `memlab-report inefficiencies` prints it.
function patternName(pattern: string): string {
  return pattern === "over_long_life" ? "held longer than needed" : pattern.replaceAll("_", " ");
}

export class InefficienciesView extends DocumentView<InefficienciesReport> {
  readonly id = "inefficiencies";
  readonly title = "Inefficiencies";
  protected readonly document = "inefficiencies";
  protected readonly missing = "The inefficiencies";

  protected override number(report: InefficienciesReport): number {
    return report.devices.reduce((sum, device) => sum + device.findings.length, 0);
  }

  private saves(finding: Finding, device: InefficienciesReport["devices"][number]): string {
    const { saves } = finding;
    if (saves.peak_bytes > 0)
      return `saves ${saves.peak_is_exact ? "" : "up to "}${bytes(saves.peak_bytes)} of the peak, ${percent(saves.peak_bytes, device.allocated_peak_bytes)}`;
    if (saves.reserved_bytes > 0)
      return `saves ${bytes(saves.reserved_bytes)} of the reserved peak in a replay, ${percent(saves.reserved_bytes, device.reserved_peak_bytes)}`;
    if (saves.calls > 0) return `saves ${plural(saves.calls, "call")}`;
    return saves.end_bytes > 0 ? `leaves ${bytes(saves.end_bytes)} at the end` : "";
  }

  protected build(scene: Scene, found: InefficienciesReport): (HTMLElement | null)[] {
    return [
      ...found.devices.flatMap((device) => [
        h("h2", deviceName(scene, device)),
        h(
          "p.heading",
          `Peak: ${bytes(device.allocated_peak_bytes)} allocated, ${bytes(device.reserved_peak_bytes)} reserved. ${
            device.findings.length === 0
              ? `No findings. Looked for: ${found.looked_for.map(patternName).join(", ")}.`
              : `${plural(device.findings.length, "finding")}; savings do not add up.`
          }`,
        ),
        device.reserve ? h("p.advice", device.reserve.text) : null,
        device.collected.count > 0
          ? h(
              "p.note",
              `Held until Python's garbage collector ran: ${plural(device.collected.count, "allocation")} of ${bytes(device.collected.bytes)} in all, ${bytes(device.collected.at_peak_bytes)} of the peak.`,
            )
          : null,
        ...device.findings.map((finding, i) =>
          h(
            "section.card.finding",
            h(
              "h3",
              `${i + 1}. ${patternName(finding.pattern)}`,
              h("span", { class: `confidence ${finding.confidence}` }, finding.confidence),
            ),
            h("p.saves", this.saves(finding, device)),
            h("p", placeElement(finding.place)),
            h("p", finding.what),
            h("p.advice", finding.change),
            stackElement(finding.stack, "Evidence: call stack"),
          ),
        ),
      ]),
      ...found.notes.map((note) => h("p.note", note)),
    ];
  }

  protected text(scene: Scene, found: InefficienciesReport): string[] {
    return found.devices.map((device) =>
      markdownPart(
        deviceName(scene, device),
        ["pattern", "confidence", "saves", "where", "what", "change"],
        device.findings.map((finding) => [
          patternName(finding.pattern),
          finding.confidence,
          this.saves(finding, device),
          placeText(finding.place),
          finding.what,
          finding.change,
        ]),
        [false, false, false, false, false, false],
      ),
    );
  }
}
