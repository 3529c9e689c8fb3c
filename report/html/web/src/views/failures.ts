// Out of memory: each failed allocation, and who held the memory then.
import { bytes, count, duration, markdownRows, percent, plural } from "../model/format";
import { type PlaceDocument, placeText } from "../model/place_names";
import type { Scene } from "../model/scene";
import { button, figure, h, plainList } from "../ui/dom";
import {
  DocumentView,
  type FrameDocument,
  type LabelDocument,
  labelText,
  markdownPart,
  placeElement,
  stackElement,
} from "./document";
import type { Surroundings } from "./view";

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
  advice?: string[];
  holders: {
    count: number;
    bytes: number;
    places: {
      bytes: number;
      count: number;
      share: number;
      place: PlaceDocument;
      labels?: (LabelDocument & { bytes: number })[];
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
  protected readonly document = "oom";
  protected readonly missing = "The failures";

  constructor(private readonly around: Surroundings) {
    super();
  }

  protected override number(report: FailuresReport): number {
    return report.oom_count;
  }

  protected build(scene: Scene, found: FailuresReport): (HTMLElement | null)[] {
    if (found.oom_count === 0) return [h("p.heading", "No allocation failed for lack of memory.")];
    const size = (value: number | null | undefined) => (value === null || value === undefined ? null : bytes(value));
    return [
      h(
        "p.heading",
        `${plural(found.oom_count, "allocation")} failed for lack of memory${found.ooms.length < found.oom_count ? `; the first ${count(found.ooms.length)} are here` : ""}.`,
      ),
      ...found.ooms.map((failure, i) =>
        h(
          "section.card.failure",
          h(
            "h2",
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
            placeElement(failure.place),
            h(
              "span.muted",
              ` ${failure.api} (${failure.kind}), error ${failure.error}, thread ${failure.thread}${failure.thread_name ? ` (${failure.thread_name})` : ""}`,
            ),
          ),
          failure.explanation ? h("p.explanation", failure.explanation) : null,
          ...(failure.advice ?? []).map((sentence) => h("p.advice", `A replay: ${sentence}`)),
          h(
            "dl.figures",
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
                h(
                  "h3",
                  `Held at that moment: ${bytes(failure.holders.bytes)} in ${plural(failure.holders.count, "allocation")}`,
                ),
                plainList(failure.holders.places.slice(0, 20), (holder) => [
                  h("span.number", bytes(holder.bytes)),
                  h("span.share", percent(holder.bytes, failure.holders!.bytes)),
                  placeElement(holder.place),
                  holder.labels ? h("span.muted", ` named ${holder.labels.map(labelText).join(", ")}`) : null,
                ]),
              )
            : null,
          stackElement(failure.stack),
        ),
      ),
    ];
  }

  protected text(_scene: Scene, found: FailuresReport): string[] {
    return found.ooms.map((failure, i) =>
      markdownPart(
        `Out of memory ${i + 1}: ${bytes(failure.requested_bytes)} at ${duration(failure.time_ns)}, ${placeText(failure.place)}\n\n${failure.explanation ?? ""}`,
        ["bytes", "count", "where"],
        (failure.holders?.places ?? [])
          .slice(0, markdownRows)
          .map((holder) => [bytes(holder.bytes), count(holder.count), placeText(holder.place)]),
        [true, true, false],
      ),
    );
  }
}
