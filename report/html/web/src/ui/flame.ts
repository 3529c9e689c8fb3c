// A flame or icicle graph on a canvas: only what is seen and wider than half a pixel is drawn.
import { percent, plural } from "../model/format";
import type { SiteTable } from "../model/site_table";
import type { CallTree } from "../model/tree";
import { button, fit, h, onWidth, prepare, replaceControls } from "./dom";
import { changeColour, colours, frameColour } from "./theme";
import { hideTooltip, showTooltip } from "./tooltip";

const rowHeight = 20;

export interface FlameInput {
  table: SiteTable;
  tree: CallTree;
  signed: boolean; // values are changes
  growsUp: boolean; // the root at the bottom
  search: Uint8Array | null; // frames that match
  searchLabel: (label: string) => boolean; // the same of levels above the calls
  title: string; // what the root stands for
  text: (value: number) => string; // of a call, with a sign where values are changes
  unit: boolean; // values are bytes that are held: their blocks are told too
}

export class FlameGraph {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas");
  private readonly scroller: HTMLElement;
  private readonly spacer: HTMLElement;
  private readonly trail = h("nav.trail", { attributes: { "aria-label": "Zoomed to" } });
  private readonly status = h("div.flame-status", { attributes: { role: "status" } });
  private input: FlameInput | null = null;
  private zoomed: string[] = []; // the path to the node in view, by keys, so that it survives a change of the moment
  private root = 0;
  private active = 0;
  private boxes: { node: number; x: number; y: number; width: number }[] = [];
  private largest = 1;

  // `zoomed`: told of the call that is zoomed to; -1: none.
  constructor(private readonly told: (frame: number) => void = () => undefined) {
    this.spacer = h("div.spacer");
    this.scroller = h(
      "div.flame-scroller",
      {
        attributes: {
          tabindex: "0",
          role: "application",
          "aria-roledescription": "flame graph",
          "aria-label":
            "Call stacks by bytes: arrows move between calls, Enter zooms, Backspace goes back. The table has the same figures.",
        },
      },
      this.canvas,
      this.spacer,
    );
    this.element = h("div.flame", this.trail, this.scroller, this.status);
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", hideTooltip);
    this.canvas.addEventListener("click", (event) => {
      const node = this.at(event.clientX, event.clientY);
      if (node >= 0) this.zoomTo(node);
    });
    onWidth(this.scroller, () => this.layout());
  }

  set(input: FlameInput): void {
    const turned = this.input && this.input.growsUp !== input.growsUp;
    this.input = input;
    const tree = input.tree;
    // Find the zoomed call again.
    this.root = 0;
    for (const key of this.zoomed) {
      const child = this.children(this.root).find((node) => this.keyOf(node) === key);
      if (child === undefined) break;
      this.root = child;
    }
    this.active = this.root;
    this.told(tree.frame[this.root]!);
    this.largest = 1;
    for (let node = 1; node < tree.frame.length; ++node)
      this.largest = Math.max(this.largest, Math.abs(tree.value[node]!));
    this.layout(turned ?? true);
  }

  redraw(): void {
    if (this.input) this.draw();
  }

  private keyOf(node: number): string {
    const { tree, table } = this.input!;
    const frame = tree.frame[node]!;
    return frame < 0 ? `${tree.label[node]}` : `${table.functionName(frame)}\n${table.location(frame, true)}`;
  }

  private children(node: number): number[] {
    const { tree } = this.input!;
    const result = [];
    for (let child = node + 1; child < tree.next[node]!; child = tree.next[child]!) result.push(child);
    return result;
  }

  private name(node: number): string {
    const { tree, table, title } = this.input!;
    if (node === 0) return title;
    const frame = tree.frame[node]!;
    return frame < 0 ? (tree.label[node] ?? "") : table.functionName(frame);
  }

  private depthBelow(node: number): number {
    const { tree } = this.input!;
    let most = tree.depth[node]!;
    for (let i = node; i < tree.next[node]!; ++i) most = Math.max(most, tree.depth[i]!);
    return most;
  }

  private layout(scrollToRoot = false): void {
    if (!this.input) return;
    const rows = this.depthBelow(this.root) + 1;
    const height = rows * rowHeight;
    this.spacer.style.height = `${height}px`;
    const visible = Math.max(8 * rowHeight, Math.min(height, Math.round(window.innerHeight * 0.62)));
    this.scroller.style.height = `${visible}px`;
    if (scrollToRoot) this.scroller.scrollTop = this.input.growsUp ? height : 0;
    const path: number[] = [];
    for (let node = this.root; node >= 0; node = this.input.tree.parent[node]!) path.unshift(node);
    replaceControls(
      this.trail,
      ...(path.length < 2
        ? []
        : path.map((node, i) =>
            i === path.length - 1
              ? h("span", { attributes: { "aria-current": "true" } }, this.name(node))
              : i === 0 || i >= path.length - 4
                ? button(this.name(node), () => this.zoomTo(node))
                : i === 1
                  ? h("span", "…")
                  : null,
          )),
    );
    this.draw();
  }

  private draw(): void {
    if (!this.input) return;
    const { tree, table, growsUp, search, signed, text, unit } = this.input;
    const width = this.scroller.clientWidth;
    const height = this.scroller.clientHeight;
    if (width < 10) return;
    const c = colours();
    const context = prepare(this.canvas, width, height);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.boxes = [];
    const whole = tree.weight[this.root]!;
    const total = (this.depthBelow(this.root) + 1) * rowHeight;
    const scroll = this.scroller.scrollTop;
    let matched = 0;
    const box = (node: number, x: number, w: number, above: boolean) => {
      const row = tree.depth[node]!;
      const y = (growsUp ? total - (row + 1) * rowHeight : row * rowHeight) - scroll;
      if (y > height || y + rowHeight < 0) return;
      const frame = tree.frame[node]!;
      const hit = this.hit(node);
      const plain = node === 0 || frame < 0;
      context.fillStyle = hit
        ? "#f0e442"
        : plain
          ? signed
            ? changeColour(0)
            : c.line
          : signed
            ? changeColour(tree.value[node]! / this.largest)
            : frameColour(table.frames.language[frame] === 1, table.file(frame) || table.moduleName(frame));
      context.globalAlpha = above ? 0.5 : search !== null && !hit ? 0.4 : 1;
      context.fillRect(x, y, Math.max(0.5, w - 0.7), rowHeight - 1);
      context.globalAlpha = 1;
      if (w > 24) {
        context.fillStyle = plain && !signed && !hit ? c.text : search !== null && !hit ? c.text : "#111";
        const where = frame >= 0 && w > 220 ? `  ${table.location(frame)}` : "";
        context.fillText(fit(context, `${this.name(node)}${where}`, w - 8), x + 4, y + rowHeight / 2);
      }
      if (node === this.active && node !== this.root) {
        context.strokeStyle = c.text;
        context.lineWidth = 2;
        context.strokeRect(x + 1, y + 1, Math.max(1, w - 2.5), rowHeight - 3);
      }
      this.boxes.push({ node, x, y, width: w });
    };
    for (let node = tree.parent[this.root]!; node >= 0; node = tree.parent[node]!) box(node, 0, width, true);
    const visit = (node: number, x: number, w: number, counted: boolean) => {
      const hit = this.hit(node);
      // What is below a match is counted once.
      if (hit && !counted) matched += tree.weight[node]!;
      box(node, x, w, false);
      let at = x;
      for (let child = node + 1; child < tree.next[node]!; child = tree.next[child]!) {
        const part = whole > 0 ? (tree.weight[child]! / whole) * width : 0;
        if (part >= 0.5) visit(child, at, part, counted || hit);
        else if (search !== null && !counted && !hit) matched += this.matchedIn(child);
        at += part;
      }
    };
    visit(this.root, 0, width, false);
    const value = tree.value[this.root]!;
    this.say(
      search !== null
        ? `${text(matched)} of ${text(whole)} (${percent(matched, whole)}) match the search`
        : this.active !== this.root
          ? this.describe(this.active).join(", ")
          : signed || !unit
            ? `${text(value)} in all`
            : `${text(value)} in ${plural(tree.blocks[this.root]!, "block")}`,
    );
  }

  // Whether the search finds it.
  private hit(node: number): boolean {
    const { tree, search, searchLabel } = this.input!;
    const frame = tree.frame[node]!;
    if (search === null || node === 0) return false;
    return frame >= 0 ? search[frame] === 1 : searchLabel(tree.label[node] ?? "");
  }

  private matchedIn(node: number): number {
    const { tree } = this.input!;
    let sum = 0;
    for (let i = node; i < tree.next[node]!;) {
      if (this.hit(i)) {
        sum += tree.weight[i]!;
        i = tree.next[i]!;
      } else ++i;
    }
    return sum;
  }

  private say(text: string): void {
    if (this.status.textContent !== text) this.status.textContent = text;
  }

  private describe(node: number): string[] {
    const { tree, table, signed, text, unit } = this.input!;
    const frame = tree.frame[node]!;
    const all = tree.weight[0]!;
    return [
      this.name(node),
      frame >= 0 ? table.location(frame, true) : "",
      signed
        ? text(tree.value[node]!)
        : `${text(tree.value[node]!)}, ${percent(tree.weight[node]!, all)}${unit ? `, in ${plural(tree.blocks[node]!, "block")}` : ""}`,
      frame >= 0 && table.file(frame) ? table.moduleName(frame) : "",
    ].filter(Boolean);
  }

  private at(clientX: number, clientY: number): number {
    const area = this.canvas.getBoundingClientRect();
    const x = clientX - area.left;
    const y = clientY - area.top;
    for (const box of this.boxes)
      if (x >= box.x && x < box.x + Math.max(2, box.width) && y >= box.y && y < box.y + rowHeight) return box.node;
    return -1;
  }

  private hover(event: PointerEvent): void {
    const node = this.at(event.clientX, event.clientY);
    this.canvas.style.cursor = node >= 0 ? "pointer" : "";
    if (node < 0) return hideTooltip();
    const [title, ...lines] = this.describe(node);
    showTooltip(event.clientX, event.clientY, title ?? "", lines);
  }

  zoomTo(node: number): void {
    this.root = node;
    this.active = node;
    this.zoomed = [];
    for (let at = node; at > 0; at = this.input!.tree.parent[at]!) this.zoomed.unshift(this.keyOf(at));
    hideTooltip();
    this.told(this.input!.tree.frame[node]!);
    this.layout();
  }

  private key(event: KeyboardEvent): void {
    if (!this.input || event.ctrlKey || event.metaKey || event.altKey) return;
    const { tree, growsUp } = this.input;
    const down = growsUp ? "ArrowUp" : "ArrowDown";
    const up = growsUp ? "ArrowDown" : "ArrowUp";
    let next = this.active;
    if (event.key === down) next = tree.next[next]! > next + 1 ? next + 1 : next;
    else if (event.key === up) {
      if (this.active === this.root && this.root > 0)
        return this.stop(event, () => this.zoomTo(tree.parent[this.root]!));
      next = Math.max(this.root, tree.parent[next]!);
    } else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      if (this.active !== this.root) {
        const siblings = this.children(tree.parent[this.active]!);
        const place = siblings.indexOf(this.active) + (event.key === "ArrowRight" ? 1 : -1);
        next = siblings[place] ?? next;
      }
    } else if (event.key === "Enter") return this.stop(event, () => this.zoomTo(this.active));
    else if (event.key === "Backspace")
      return this.stop(event, () => this.zoomTo(Math.max(0, tree.parent[this.root]!)));
    else if (event.key === "Home") next = this.root;
    else return;
    this.stop(event, () => {
      this.active = next;
      const row = tree.depth[next]!;
      const rows = this.depthBelow(this.root) + 1;
      const y = growsUp ? (rows - row - 1) * rowHeight : row * rowHeight;
      if (y < this.scroller.scrollTop) this.scroller.scrollTop = y;
      else if (y + rowHeight > this.scroller.scrollTop + this.scroller.clientHeight)
        this.scroller.scrollTop = y + rowHeight - this.scroller.clientHeight;
      this.draw();
    });
  }

  private stop(event: Event, then: () => void): void {
    event.preventDefault();
    event.stopPropagation();
    then();
  }
}
