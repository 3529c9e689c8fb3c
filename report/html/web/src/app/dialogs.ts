// The boxes over the page: keys, about, and text to be copied by hand.
import licenses from "virtual:licenses";
import type { PageData } from "../data";
import { button, h } from "../ui/dom";
import { keys } from "./keys";

export function dialog(title: string, ...content: HTMLElement[]): void {
  const box = h(
    "dialog",
    { attributes: { "aria-label": title } },
    h("h2", title),
    ...content,
    h(
      "p.right",
      button("Close", () => box.close()),
    ),
  );
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

export function showKeys(): void {
  dialog(
    "Keyboard",
    h("dl.keys", ...keys.flatMap(({ shown, text }) => [h("dt", shown), h("dd", text)])),
    h(
      "p.muted",
      "On the timeline: click to select a moment, drag to select a range, Ctrl and the wheel zoom. The address of the page holds the view: send it with the file.",
    ),
  );
}

export function showAbout({ memlab, sources }: PageData): void {
  dialog(
    "About this page",
    h("p", `Written by memlab ${memlab}, with memlab-report html. It is one file, loads nothing and sends nothing.`),
    h(
      "p",
      sources
        ? "It holds source lines around the frames."
        : "It holds no source lines and no arguments of the command (--no-source).",
    ),
    h("p", "memlab is under the Apache License 2.0. In this page are:"),
    ...licenses.map((one) =>
      h("details", h("summary", `${one.name} ${one.version}, ${one.license}`), h("pre.license", one.text)),
    ),
  );
}

export function showText(title: string, label: string, text: string): void {
  const area = h("textarea", { attributes: { rows: "16", "aria-label": label } });
  area.value = text;
  dialog(title, area);
  area.select();
}
