// Light and dark, and the colours of what is drawn: Okabe and Ito's palette, which colour-blind people tell apart.

export type Theme = "auto" | "light" | "dark";

// Okabe-Ito, ordered so that neighbours differ in brightness too.
export const palette = [
  "#0072b2",
  "#e69f00",
  "#009e73",
  "#cc79a7",
  "#56b4e9",
  "#d55e00",
  "#f0e442",
  "#8c8c8c",
] as const;

const curveColours = new Map<string, [light: string, dark: string]>(
  Object.entries({
    allocated: ["#0072b2", "#56b4e9"],
    reserved: ["#c98500", "#e69f00"],
    active: ["#007d5b", "#2fc39b"],
    requested: ["#b0558a", "#e0a0c4"],
    device_used: ["#6b6b6b", "#b5b5b5"],
    used: ["#6b6b6b", "#b5b5b5"],
  }),
);

const others: [string, string][] = [
  ["#d55e00", "#ff9a57"],
  ["#7a6a00", "#f0e442"],
  ["#4b4b9e", "#a9a9ff"],
  ["#56820e", "#a8d65c"],
];

const systemIsDark = () => matchMedia("(prefers-color-scheme: dark)");

// Sets the look, as chosen or as the system has it.
export function applyTheme(theme: Theme): void {
  document.documentElement.dataset["theme"] = theme === "auto" ? (systemIsDark().matches ? "dark" : "light") : theme;
}

export function onSystemTheme(changed: () => void): void {
  systemIsDark().addEventListener("change", changed);
}

export function isDark(): boolean {
  return document.documentElement.dataset["theme"] === "dark";
}

export function curveColour(kind: string, position: number): string {
  const pair = curveColours.get(kind) ?? others[position % others.length]!;
  return pair[isDark() ? 1 : 0];
}

export interface Colours {
  text: string;
  muted: string;
  background: string;
  panel: string;
  line: string;
  accent: string;
  more: string;
  less: string;
  free: string;
  oom: string;
}

// The colours of the style sheet, for canvases.
export function colours(): Colours {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string) => style.getPropertyValue(name).trim();
  return {
    text: read("--text"),
    muted: read("--muted"),
    background: read("--background"),
    panel: read("--panel"),
    line: read("--line"),
    accent: read("--accent"),
    more: read("--more"),
    less: read("--less"),
    free: read("--free"),
    oom: read("--oom"),
  };
}

// A colour of the palette for the n-th of many things; the last stands for all others.
export function seriesColour(index: number): string {
  return palette[index % palette.length]!;
}

function hash(text: string): number {
  let value = 2166136261;
  for (let i = 0; i < text.length; ++i) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
  return value >>> 0;
}

// Frames: Python in oranges, native code in blues, brightness by the module or file; text on them is black.
const hues = new Map<string, string>();
export function frameColour(python: boolean, family: string): string {
  const key = `${python ? 1 : 0}${family}`;
  let colour = hues.get(key);
  if (!colour) {
    const spread = hash(family);
    const lightness = 62 + (spread % 20);
    const hue = python ? 32 + ((spread >>> 8) % 18) : 196 + ((spread >>> 8) % 20);
    colour = `hsl(${hue} ${python ? 85 : 62}% ${lightness}%)`;
    hues.set(key, colour);
  }
  return colour;
}

// A change from blue (less) over grey to vermilion (more), by its share of the largest; text on it is black.
export function changeColour(share: number): string {
  const strength = Math.min(1, Math.abs(share));
  const lightness = 86 - 26 * Math.sqrt(strength);
  return share > 0 ? `hsl(22 90% ${lightness}%)` : share < 0 ? `hsl(204 75% ${lightness}%)` : "hsl(0 0% 84%)";
}
