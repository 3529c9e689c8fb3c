// Elements without markup: names come from recordings and only ever become text.

type Child = Node | string | null | undefined | false;
interface Properties {
  class?: string;
  id?: string;
  title?: string;
  on?: Partial<{ [K in keyof HTMLElementEventMap]: (event: HTMLElementEventMap[K]) => void }>;
  attributes?: Record<string, string>;
}

type Tag = keyof HTMLElementTagNameMap;
type Selector = Tag | `${Tag}.${string}`;
type Made<S> = S extends Tag
  ? HTMLElementTagNameMap[S]
  : S extends `${infer T extends Tag}.${string}`
    ? Made<T>
    : never;

// An element of a tag, with classes behind it: h("p.heading", "Text").
export function h<S extends Selector>(selector: S, first?: Properties | Child, ...children: Child[]): Made<S> {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElement(tag as Tag);
  const isChild = typeof first !== "object" || first === null || first instanceof Node;
  const properties = isChild ? {} : first;
  if (properties.class) classes.push(properties.class);
  if (classes.length > 0) element.className = classes.join(" ");
  if (properties.id) element.id = properties.id;
  if (properties.title) element.title = properties.title;
  for (const [name, value] of Object.entries(properties.attributes ?? {})) element.setAttribute(name, value);
  for (const [name, listener] of Object.entries(properties.on ?? {}))
    element.addEventListener(name, listener as EventListener);
  append(element, isChild ? [first, ...children] : children);
  return element as Made<S>;
}

// A list without marks, an item for each of `items` with these parts.
export function plainList<T>(items: T[], parts: (item: T) => Child[]): HTMLElement {
  return h("ul.plain", ...items.map((item) => h("li", ...parts(item))));
}

export function append(element: Element, children: Child[]): void {
  for (const child of children) if (child !== null && child !== undefined && child !== false) element.append(child);
}

export function replace(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

// As replace, for controls that are made again while one of them is used: the focus stays at the same place.
export function replaceControls(element: Element, ...children: Child[]): void {
  const controls = () => [...element.querySelectorAll<HTMLElement>("button, select, input, summary")];
  const focused = controls().indexOf(document.activeElement as HTMLElement);
  replace(element, ...children);
  if (focused >= 0) controls()[focused]?.focus({ preventScroll: true });
}

// A figure with its name, of a list of figures; nothing where there is none.
export function figure(name: string, value: string | null): HTMLElement | null {
  return value === null ? null : h("div", h("dt", name), h("dd", value));
}

export function button(label: string, press: () => void, properties: Properties = {}): HTMLButtonElement {
  const made = h("button", properties, label);
  made.type = "button";
  made.addEventListener("click", press);
  return made;
}

// A row of buttons of which one is chosen.
export function choice<T extends string>(
  label: string,
  options: Record<T, string>,
  choose: (value: T) => void,
): { element: HTMLElement; set: (value: T) => void; hide: (value: T, hidden: boolean) => void } {
  const values = Object.keys(options) as T[];
  const buttons = values.map((value) =>
    button(options[value], () => choose(value), { attributes: { "aria-pressed": "false" } }),
  );
  return {
    element: h("div.choice", { attributes: { role: "group", "aria-label": label } }, ...buttons),
    set: (value) => values.forEach((of, i) => buttons[i]!.setAttribute("aria-pressed", String(of === value))),
    hide: (value, hidden) => {
      buttons[values.indexOf(value)]!.hidden = hidden;
    },
  };
}

export function select(
  label: string,
  options: [string, string][],
  choose: (value: string) => void,
): { element: HTMLElement; set: (value: string) => void; options: (options: [string, string][]) => void } {
  const box = h("select", { on: { change: () => choose(box.value) } });
  const fill = (list: [string, string][]) =>
    replace(
      box,
      ...list.map(([value, text]) => {
        const option = h("option", text);
        option.value = value;
        return option;
      }),
    );
  fill(options);
  return {
    element: h("label.field", h("span", label), box),
    set: (value) => {
      box.value = value;
    },
    options: fill,
  };
}

export function checkbox(
  label: string,
  change: (on: boolean) => void,
): { element: HTMLElement; set: (on: boolean) => void } {
  const box = h("input", { on: { change: () => change(box.checked) } });
  box.type = "checkbox";
  return {
    element: h("label.check", box, label),
    set: (on) => {
      box.checked = on;
    },
  };
}

// A text field; changes come when typing pauses.
export function textField(
  label: string,
  hint: string,
  change: (text: string) => void,
  id?: string,
): { element: HTMLElement; set: (text: string) => void } {
  let timer = 0;
  const input = h("input", {
    ...(id ? { id } : {}),
    attributes: { placeholder: hint, spellcheck: "false", autocomplete: "off" },
    on: {
      input: () => {
        clearTimeout(timer);
        timer = window.setTimeout(() => change(input.value), 150);
      },
    },
  });
  input.type = "search";
  return {
    element: h("label.field", h("span", label), input),
    set: (text) => {
      if (document.activeElement !== input) input.value = text;
    },
  };
}

// Sets a canvas to a size in CSS pixels and returns its context, scaled to the screen's pixels.
export function prepare(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d")!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// Calls `then` when the element's width has changed, once it is shown first too.
export function onWidth(element: Element, then: () => void): void {
  let width = 0;
  new ResizeObserver(() => {
    if (element.clientWidth === width) return;
    width = element.clientWidth;
    then();
  }).observe(element);
}

// The text, cut to a width in pixels with an ellipsis.
export function fit(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (width < 14) return "";
  // Long names first by an estimate: measuring is what costs.
  let shown = text.length > width / 3 ? text.slice(0, Math.ceil(width / 3)) : text;
  if (shown === text && context.measureText(text).width <= width) return text;
  let low = 0;
  let high = shown.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${shown.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  shown = shown.slice(0, low);
  return low < 2 ? "" : `${shown}…`;
}
