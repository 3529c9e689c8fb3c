// Segments and the blocks in them: a row for each segment, drawn where it is seen.
import { bytes, percent } from "../model/format";
import { free, type SegmentRow } from "../model/segments";
import { fit, h, onWidth, prepare } from "./dom";
import { colours } from "./theme";
import { hideTooltip, showTooltip } from "./tooltip";

export interface MapInput {
  rows: SegmentRow[];
  toScale: boolean; // widths by size; else each segment takes the whole width
  colour: (site: number) => string;
  name: (site: number) => string;
  label: (text: number) => string; // the program's name for a block; "": none
  lit: (site: number) => boolean; // the rest is dimmed
  chosen: number; // site, or -1
}

const rowHeight = 30;

export class MapCanvas {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas");
  private readonly scroller: HTMLElement;
  private readonly spacer = h("div.spacer");
  private readonly status = h("div.flame-status", { attributes: { role: "status" } });
  private input: MapInput | null = null;
  private active: { row: number; block: number } | null = null;

  constructor(private readonly choose: (site: number) => void) {
    this.scroller = h(
      "div.map-scroller",
      {
        attributes: {
          tabindex: "0",
          role: "application",
          "aria-roledescription": "memory map",
          "aria-label":
            "Segments of memory with the blocks in them: up and down choose a segment, left and right a block, Enter shows its place",
        },
      },
      this.canvas,
      this.spacer,
    );
    this.element = h("div.map", this.scroller, this.status);
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    this.scroller.addEventListener("scroll", () => this.redraw(), { passive: true });
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", hideTooltip);
    this.canvas.addEventListener("click", (event) => {
      const found = this.at(event);
      if (found) this.choose(found.block < 0 ? free : found.row.segment.site[found.block]!);
    });
    onWidth(this.scroller, () => this.redraw());
  }

  set(input: MapInput): void {
    if (this.input?.rows.length !== input.rows.length) this.active = null;
    this.input = input;
    const height = input.rows.length * rowHeight;
    this.spacer.style.height = `${height}px`;
    this.scroller.style.height = `${Math.max(rowHeight * 3, Math.min(height, Math.round(window.innerHeight * 0.62)))}px`;
    this.redraw();
  }

  private labelWidth(): number {
    return this.scroller.clientWidth < 560 ? 76 : 168;
  }

  private barWidth(row: SegmentRow): number {
    const room = this.scroller.clientWidth - this.labelWidth() - 8;
    if (!this.input!.toScale) return room;
    const largest = this.input!.rows.reduce((most, one) => Math.max(most, one.segment.size), 1);
    return Math.max(3, (row.segment.size / largest) * room);
  }

  redraw(): void {
    const input = this.input;
    const width = this.scroller.clientWidth;
    const height = this.scroller.clientHeight;
    if (!input || width < 50) return;
    const c = colours();
    const context = prepare(this.canvas, width, height);
    context.textBaseline = "middle";
    const left = this.labelWidth();
    const scroll = this.scroller.scrollTop;
    const last = Math.min(input.rows.length, Math.ceil((scroll + height) / rowHeight));
    for (let i = Math.floor(scroll / rowHeight); i < last; ++i) {
      const row = input.rows[i]!;
      const { segment } = row;
      const y = i * rowHeight - scroll;
      context.font = "12px system-ui, sans-serif";
      context.fillStyle = c.text;
      context.fillText(fit(context, bytes(segment.size), left - 8), 4, y + rowHeight / 2);
      if (left > 100) {
        context.fillStyle = c.muted;
        context.fillText(fit(context, `${percent(row.used, segment.size)} used`, 80), 86, y + rowHeight / 2);
      }
      const bar = this.barWidth(row);
      context.fillStyle = c.free;
      context.fillRect(left, y + 4, bar, rowHeight - 8);
      const scale = bar / segment.size;
      let drawn = -1;
      for (let b = 0; b < segment.offset.length; ++b) {
        const site = segment.site[b]!;
        if (site === free) continue;
        const x = left + segment.offset[b]! * scale;
        const end = x + segment.length[b]! * scale;
        if (end < drawn + 0.3) continue;
        drawn = end;
        context.globalAlpha = input.lit(site) ? 1 : 0.22;
        context.fillStyle = input.colour(site);
        const wide = Math.max(0.7, end - x - (end - x > 4 ? 0.8 : 0));
        context.fillRect(x, y + 4, wide, rowHeight - 8);
        context.globalAlpha = 1;
        if (site === input.chosen || (this.active?.row === i && this.active.block === b)) {
          context.strokeStyle = c.text;
          context.lineWidth = 2;
          context.strokeRect(x + 1, y + 5, Math.max(1, wide - 2), rowHeight - 10);
        }
        if (wide > 60 && input.lit(site)) {
          context.font = "11px system-ui, sans-serif";
          const text = fit(context, input.label(segment.label[b]!) || input.name(site), wide - 14);
          const length = context.measureText(text).width;
          context.fillStyle = "#ffffffd0";
          if (text) context.fillRect(x + 4, y + 7, length + 6, rowHeight - 14);
          context.fillStyle = "#111";
          context.fillText(text, x + 7, y + rowHeight / 2 + 0.5);
        }
      }
      context.strokeStyle = this.active?.row === i ? c.accent : c.muted;
      context.lineWidth = this.active?.row === i ? 2 : 1;
      context.strokeRect(left + 0.5, y + 4.5, Math.max(1, bar - 1), rowHeight - 9);
    }
  }

  private key(event: KeyboardEvent): void {
    const rows = this.input?.rows ?? [];
    if (rows.length === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    let { row, block } = this.active ?? { row: 0, block: -1 };
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (this.active) row = Math.max(0, Math.min(rows.length - 1, row + (event.key === "ArrowDown" ? 1 : -1)));
      block = -1;
    } else if (event.key === "ArrowRight") block = Math.min(rows[row]!.segment.offset.length - 1, block + 1);
    else if (event.key === "ArrowLeft") block = Math.max(-1, block - 1);
    else if (event.key === "Enter" && block >= 0) this.choose(rows[row]!.segment.site[block]!);
    else return;
    event.preventDefault();
    event.stopPropagation();
    this.active = { row, block };
    const y = row * rowHeight;
    if (y < this.scroller.scrollTop) this.scroller.scrollTop = y;
    else if (y + rowHeight > this.scroller.scrollTop + this.scroller.clientHeight)
      this.scroller.scrollTop = y + rowHeight - this.scroller.clientHeight;
    const { segment, used } = rows[row]!;
    this.status.textContent =
      block < 0
        ? `Segment ${segment.address}: ${bytes(segment.size)}, ${percent(used, segment.size)} used, ${segment.offset.length} pieces`
        : `${segment.site[block] === free ? "free" : this.blockName(segment, block)}: ${bytes(segment.length[block]!)} at offset ${bytes(segment.offset[block]!)} of segment ${segment.address}`;
    this.redraw();
  }

  private labelText(segment: SegmentRow["segment"], block: number): string {
    const { label } = this.input!;
    return [label(segment.label[block]!), label(segment.label_detail[block]!)].filter(Boolean).join("  ");
  }

  private blockName(segment: SegmentRow["segment"], block: number): string {
    const { name } = this.input!;
    return [this.labelText(segment, block), name(segment.site[block]!)].filter(Boolean).join(", ");
  }

  private at(event: MouseEvent): { row: SegmentRow; block: number; offset: number } | null {
    const box = this.canvas.getBoundingClientRect();
    const row = this.input?.rows[Math.floor((event.clientY - box.top + this.scroller.scrollTop) / rowHeight)];
    if (!row) return null;
    const offset = ((event.clientX - box.left - this.labelWidth()) / this.barWidth(row)) * row.segment.size;
    if (offset < 0 || offset > row.segment.size) return null;
    const slack = row.segment.size / this.barWidth(row);
    let found = -1;
    for (let b = 0; b < row.segment.offset.length; ++b) {
      const begin = row.segment.offset[b]!;
      if (begin > offset + slack) break;
      if (begin + row.segment.length[b]! >= offset - (found < 0 ? slack : 0)) found = b;
      if (begin <= offset && offset < begin + row.segment.length[b]!) break;
    }
    return { row, block: found >= 0 && row.segment.site[found] !== free ? found : -1, offset };
  }

  private hover(event: PointerEvent): void {
    const found = this.at(event);
    if (!found) return hideTooltip();
    const { segment, used, largestFree } = found.row;
    const where = `segment ${segment.address}, ${bytes(segment.size)}, ${percent(used, segment.size)} used`;
    if (found.block >= 0) {
      const site = segment.site[found.block]!;
      const label = this.labelText(segment, found.block);
      showTooltip(event.clientX, event.clientY, label || this.input!.name(site), [
        ...(label ? [this.input!.name(site)] : []),
        `${bytes(segment.length[found.block]!)} at offset ${bytes(segment.offset[found.block]!)}`,
        where,
        segment.pool,
      ]);
    } else
      showTooltip(event.clientX, event.clientY, "free: cached in this segment", [
        where,
        `largest free block ${bytes(largestFree)}`,
        segment.pool,
      ]);
  }
}
