// Numbers as memlab-report prints them (report/text/units.cpp): binary units with two decimals, grouped counts.

const units = ["B", "KiB", "MiB", "GiB", "TiB"];

// "3.81 MiB", "512 B". What rounds to 1024.00 belongs to the next unit. Ties go to even, as in model/size_text.cpp.
export function bytes(value: number): string {
  const sign = value < 0 ? "-" : "";
  const size = Math.abs(Math.round(value));
  if (size < 1024) return `${sign}${size} B`;
  for (let power = 1; ; ++power) {
    const unit = 1024 ** power;
    const part = (size % unit) * 100; // below 2^47: exact
    const rest = part % unit;
    let hundredths = Math.floor(size / unit) * 100 + Math.floor(part / unit);
    if (rest > unit / 2 || (rest === unit / 2 && hundredths % 2 !== 0)) ++hundredths;
    if (hundredths < 102400 || power === units.length - 1)
      return `${sign}${Math.floor(hundredths / 100)}.${String(hundredths % 100).padStart(2, "0")} ${units[power]}`;
  }
}

// As printf's "%.*f": a tie, which toFixed rounds up, goes to even.
export function fixed(value: number, digits: number): string {
  const halves = value * 2 ** (digits + 1);
  if (!Number.isInteger(halves) || halves % 2 === 0) return value.toFixed(digits);
  const below = Math.floor(value * 10 ** digits);
  return ((below % 2 === 0 ? below : below + 1) / 10 ** digits).toFixed(digits);
}

// A change: "+3.81 MiB", "-512 B", "0 B".
export function signedBytes(value: number): string {
  return value > 0 ? `+${bytes(value)}` : bytes(value);
}

// "1,234,567"
export function count(value: number): string {
  const digits = String(Math.abs(Math.round(value)));
  return (value < 0 ? "-" : "") + digits.replace(/\B(?=(\d{3})+$)/g, ",");
}

export function signedCount(value: number): string {
  return value > 0 ? `+${count(value)}` : count(value);
}

// "1 block", "2 blocks", "2 processes"
export function plural(value: number, singular: string): string {
  return `${count(value)} ${singular}${value === 1 ? "" : singular.endsWith("s") ? "es" : "s"}`;
}

export function duration(ns: number): string {
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 999_950) return `${fixed(ns / 1e3, 1)} us`;
  if (ns < 999_995_000) return `${fixed(ns / 1e6, 2)} ms`;
  if (ns < 59_999_500_000) return `${fixed(ns / 1e9, 3)} s`;
  const seconds = Math.floor((ns + 5e8) / 1e9);
  const two = (part: number) => String(Math.floor(part)).padStart(2, "0");
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${two((seconds % 3600) / 60)} min`;
}

export function percent(part: number, whole: number): string {
  if (whole === 0) return "-";
  const value = (100 * part) / whole;
  if (part !== 0 && Math.abs(value) < 0.05) return "<0.1%";
  return `${fixed(value, 1)}%`;
}

// The last part of a path.
export function basename(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

// As many rows has a view's table in Markdown.
export const markdownRows = 20;

// A Markdown table. Names come from recordings: what would be markup is escaped, and lines are kept whole.
export function markdownTable(head: string[], rows: string[][], right: boolean[]): string {
  const line = (cells: string[]) => `| ${cells.map(markdownText).join(" | ")} |`;
  return [line(head), `|${head.map((_, i) => (right[i] ? "---:" : "---")).join("|")}|`, ...rows.map(line)].join("\n");
}

export function markdownText(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f]/g, " ").replace(/[\\`*_{}[\]<>|#!~&]/g, "\\$&");
}
