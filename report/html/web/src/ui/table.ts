// A table whose rows exist only where they are seen: a hundred thousand rows scroll as ten do.
import { h, replace } from "./dom";

export interface Column<Row> {
  id: string;
  head: string;
  hint?: string;
  width: string; // a grid track
  right?: boolean;
  low?: boolean; // left out where the screen is narrow
  cell: (row: Row) => Node | string;
  text?: (row: Row) => string; // for Markdown; else the cell's text
  sort?: (row: Row) => number | string;
}

// A column of figures: right-aligned, sorted by the figure, left out where the screen is narrow.
export function figures<Row>(
  id: string,
  head: string,
  width: number,
  value: (row: Row) => number,
  format: (value: number, row: Row) => Node | string,
  more: Partial<Column<Row>> = {},
): Column<Row> {
  const cell = (row: Row) => format(value(row), row);
  return { id, head, width: `${width}px`, right: true, low: true, cell, sort: value, ...more };
}

// A figure with a bar behind it, as long as its share.
export function bar(text: string, share: number, kind = ""): HTMLElement {
  const cell = h("span", { class: `bar ${kind}` }, text);
  cell.style.setProperty("--share", `${Math.min(100, Math.max(0, share * 100))}%`);
  return cell;
}

// A few rows that are all there: names on the left, figures beside them.
export function smallTable(head: string[], rows: [name: string, ...cells: (string | HTMLElement)[]][]): HTMLElement {
  return h(
    "table.small",
    h("thead", h("tr", ...head.map((text) => (text ? h("th", { attributes: { scope: "col" } }, text) : h("td"))))),
    h(
      "tbody",
      ...rows.map(([name, ...cells]) =>
        h(
          "tr",
          h("th", { attributes: { scope: "row" } }, name),
          ...cells.map((cell) => (typeof cell === "string" ? h("td", cell) : cell)),
        ),
      ),
    ),
  );
}

const rowHeight = 32;
const printed = 60; // rows on paper

export class Table<Row> {
  readonly element: HTMLElement;
  private rows: Row[] = [];
  private total: Row | null = null;
  private readonly head: HTMLElement;
  private readonly scroller: HTMLElement;
  private readonly body: HTMLElement;
  private readonly foot: HTMLElement;
  private active = -1;
  private sortBy: string;
  private ascending = false;
  private printing = false;

  constructor(
    label: string,
    readonly columns: Column<Row>[],
    sortBy: string,
    private readonly choose: ((row: Row) => void) | null = null,
    private readonly isChosen: (row: Row) => boolean = () => false,
    private readonly empty = "Nothing here.",
    private readonly canChoose: (row: Row) => boolean = () => true,
  ) {
    this.sortBy = sortBy;
    this.head = h("div.row.head", { attributes: { role: "row" } });
    this.body = h("div.rows", { attributes: { role: "rowgroup" } });
    this.foot = h("div.foot", { attributes: { role: "rowgroup" } });
    this.scroller = h("div.scroller", { attributes: { role: "presentation" } }, this.body);
    this.element = h(
      "div.table",
      { attributes: { role: "grid", "aria-label": label } },
      h("div", { attributes: { role: "rowgroup" } }, this.head),
      this.scroller,
      this.foot,
    );
    this.element.style.setProperty("--columns", columns.map((column) => column.width).join(" "));
    this.element.style.setProperty(
      "--columns-narrow",
      columns
        .filter((column) => !column.low)
        .map((column) => column.width)
        .join(" "),
    );
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.scroller);
    window.addEventListener("beforeprint", () => {
      this.printing = true;
      this.draw();
    });
    window.addEventListener("afterprint", () => {
      this.printing = false;
      this.draw();
    });
  }

  set(rows: Row[], total: Row | null = null): void {
    this.rows = rows;
    this.total = total;
    this.active = -1;
    this.order();
    this.draw();
  }

  // Rows that are made again after one of them was pressed: the active one stays.
  keep(rows: Row[]): void {
    const { active } = this;
    this.rows = rows;
    this.active = Math.min(active, rows.length - 1);
    this.order();
    this.draw();
  }

  // The first rows as they are ordered, for Markdown.
  cells(count: number): { head: string[]; right: boolean[]; rows: string[][]; left: number } {
    const shown = this.total ? [...this.rows.slice(0, count), this.total] : this.rows.slice(0, count);
    return {
      head: this.columns.map((column) => column.head),
      right: this.columns.map((column) => column.right ?? false),
      rows: shown.map((row) =>
        this.columns.map((column) => {
          const cell = column.text?.(row) ?? column.cell(row);
          return typeof cell === "string" ? cell : (cell.textContent ?? "");
        }),
      ),
      left: Math.max(0, this.rows.length - count),
    };
  }

  refresh(): void {
    this.draw();
  }

  private order(): void {
    const by = this.columns.find((column) => column.id === this.sortBy)?.sort;
    if (by) {
      const keys = new Map(this.rows.map((row) => [row, by(row)]));
      const sign = this.ascending ? 1 : -1;
      this.rows = [...this.rows].sort((a, b) => {
        const x = keys.get(a)!;
        const y = keys.get(b)!;
        return x < y ? -sign : x > y ? sign : 0;
      });
    }
    replace(
      this.head,
      ...this.columns.map((column) => {
        const sorted = column.id === this.sortBy;
        const title = column.head + (sorted ? (this.ascending ? " ▲" : " ▼") : "");
        const cell = h("div", {
          class: `cell${column.right ? " right" : ""}${column.low ? " low" : ""}`,
          ...(column.hint ? { title: column.hint } : {}),
          attributes: {
            role: "columnheader",
            ...(sorted ? { "aria-sort": this.ascending ? "ascending" : "descending" } : {}),
          },
        });
        if (column.sort) {
          const press = h("button", { on: { click: () => this.sort(column) } }, title);
          press.type = "button";
          press.dataset["column"] = column.id;
          cell.append(press);
        } else cell.append(title);
        return cell;
      }),
    );
  }

  private sort(column: Column<Row>): void {
    this.ascending = this.sortBy === column.id ? !this.ascending : typeof column.sort!(this.rows[0]!) === "string";
    this.sortBy = column.id;
    this.order();
    this.draw();
    this.head.querySelector<HTMLElement>(`[data-column="${column.id}"]`)?.focus();
  }

  private draw(): void {
    const height = this.scroller.clientHeight;
    const first = this.printing ? 0 : Math.max(0, Math.floor(this.scroller.scrollTop / rowHeight) - 4);
    const last = this.printing
      ? Math.min(this.rows.length, printed)
      : Math.min(this.rows.length, Math.ceil((this.scroller.scrollTop + Math.max(height, 300)) / rowHeight) + 4);
    this.element.setAttribute("aria-rowcount", String(this.rows.length + 1 + (this.total ? 1 : 0)));
    this.body.style.height = `${(this.printing ? last : this.rows.length) * rowHeight}px`;
    const made: HTMLElement[] = [];
    for (let i = first; i < last; ++i) {
      const row = this.row(this.rows[i]!, i);
      // One row is in the order of Tab: the active one, where it is seen.
      if (i === Math.max(first, Math.min(last - 1, Math.max(0, this.active)))) row.tabIndex = 0;
      row.style.top = `${i * rowHeight}px`;
      made.push(row);
    }
    if (this.rows.length === 0)
      made.push(
        h(
          "div.row.empty",
          { attributes: { role: "row" } },
          h("div.cell", { attributes: { role: "gridcell" } }, this.empty),
        ),
      );
    this.body.classList.toggle("none", this.rows.length === 0);
    const focused = this.body.contains(document.activeElement);
    replace(this.body, ...made);
    if (focused) this.body.querySelector<HTMLElement>("[tabindex]")?.focus({ preventScroll: true });
    replace(this.foot, this.total && this.row(this.total, this.rows.length, true));
  }

  private row(row: Row, index: number, total = false): HTMLElement {
    const chosen = !total && this.isChosen(row);
    const element = h(
      "div",
      {
        class: `row${total ? " total" : ""}${chosen ? " chosen" : ""}${index === this.active ? " active" : ""}`,
        attributes: {
          role: "row",
          "aria-rowindex": String(index + 2),
          ...(this.choose && !total ? { "aria-selected": String(chosen) } : {}),
        },
      },
      ...this.columns.map((column) =>
        h(
          "div",
          {
            class: `cell${column.right ? " right" : ""}${column.low ? " low" : ""}`,
            attributes: { role: "gridcell" },
          },
          column.cell(row),
        ),
      ),
    );
    if (this.choose && !total && this.canChoose(row)) {
      element.classList.add("press");
      element.addEventListener("click", () => {
        this.active = index;
        this.choose!(row);
        this.draw();
      });
    }
    return element;
  }

  private key(event: KeyboardEvent): void {
    if (!this.body.contains(event.target as Node) || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / rowHeight) - 1);
    const steps: Record<string, number> = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: page,
      PageUp: -page,
      Home: -Infinity,
      End: Infinity,
    };
    const step = steps[event.key];
    if (step !== undefined && this.rows.length > 0) {
      this.active = Math.max(0, Math.min(this.rows.length - 1, this.active + step));
      const top = this.active * rowHeight;
      if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
      else if (top + rowHeight > this.scroller.scrollTop + this.scroller.clientHeight)
        this.scroller.scrollTop = top + rowHeight - this.scroller.clientHeight;
      this.draw();
    } else if (
      (event.key === "Enter" || event.key === " ") &&
      this.active >= 0 &&
      this.choose &&
      this.canChoose(this.rows[this.active]!)
    ) {
      this.choose(this.rows[this.active]!);
      this.draw();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
