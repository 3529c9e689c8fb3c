// A view of one document in the page: the report of a command of memlab-report, as its --json says it. Figures are those
// of the document, so they equal the command's.
import { basename, markdownTable } from "../model/format";
import { type PlaceDocument, placeName, placeText, placeWhere } from "../model/place_names";
import type { Scene } from "../model/scene";
import { h, replace } from "../ui/dom";
import { whereElement } from "../ui/where";
import type { View } from "./view";

export type FrameDocument = Omit<PlaceDocument, "through"> & { inlined: boolean; python: boolean };

// A name that the program gave to memory; detail: what it holds, "float32[512, 512]".
export interface LabelDocument {
  name: string;
  detail?: string;
}

export function labelText(label: LabelDocument): string {
  return `“${label.name}”${label.detail ? ` ${label.detail}` : ""}`;
}

export interface DeviceDocument {
  index: number;
  name: string;
}

export function deviceName(scene: Scene, device: DeviceDocument): string {
  return scene.model.device(device.index)?.label ?? device.name;
}

export function placeElement(place: PlaceDocument, short = false): HTMLElement {
  return h(
    "span.place",
    { title: placeText(place) },
    h("span.function", placeName(place)),
    whereElement(short ? basename(placeWhere(place)) : placeWhere(place)),
    place.through ? h("span.where.via", `via ${place.through}`) : null,
  );
}

export function stackElement(stack: FrameDocument[] | undefined, label = "Call stack"): HTMLElement | null {
  if (!stack || stack.length === 0) return null;
  return h(
    "details.stack",
    h("summary", `${label}, innermost first`),
    h(
      "ol",
      ...stack.map((frame) =>
        h(
          "li",
          h("span.function", placeName({ ...frame, through: null })),
          " ",
          h("span.where", placeWhere({ ...frame, through: null })),
        ),
      ),
    ),
  );
}

// A part of a view in Markdown: a title, and a table below it.
export function markdownPart(title: string, head: string[], rows: string[][], right: boolean[]): string {
  return `${title}\n\n${markdownTable(head, rows, right)}`;
}

// It does not depend on the selection: it is built once for each recording.
export abstract class DocumentView<Report> implements View {
  abstract readonly id: string;
  abstract readonly title: string;
  readonly element = h("div.view.document");
  protected abstract readonly document: string; // its name among the recording's documents
  protected abstract readonly missing: string; // what is not known without it
  private shown: Report | null | undefined;

  protected abstract build(scene: Scene, report: Report): (HTMLElement | null)[];
  protected abstract text(scene: Scene, report: Report): string[]; // parts in Markdown
  protected number(_report: Report): number | null {
    return null;
  }

  private report(scene: Scene): Report | null {
    const document = scene.model.source.documents[this.document];
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
        : [h("p.heading", `${this.missing} of this recording are not known: they need its event log (*.memlog).`)]),
    );
  }

  markdown(scene: Scene): string {
    const report = this.report(scene);
    return report ? this.text(scene, report).join("\n\n") : (this.element.textContent ?? "");
  }
}
