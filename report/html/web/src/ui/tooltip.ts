// One tooltip for all canvases. It repeats what is available by keyboard, so screen readers are not told of it.
import { h, replace } from "./dom";

let box: HTMLElement | null = null;

export function showTooltip(x: number, y: number, title: string, lines: string[]): void {
  if (!box) {
    box = h("div.tooltip", { attributes: { "aria-hidden": "true" } });
    document.body.append(box);
  }
  replace(box, h("strong", title), ...lines.filter(Boolean).map((line) => h("span", line)));
  box.hidden = false;
  const width = box.offsetWidth;
  const height = box.offsetHeight;
  box.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - width - 8))}px`;
  box.style.top = `${y + 16 + height > window.innerHeight ? Math.max(4, y - height - 10) : y + 16}px`;
}

export function hideTooltip(): void {
  if (box) box.hidden = true;
}
