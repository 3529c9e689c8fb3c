// Patterns of names, as the commands read them.
import { basename } from "./format";

// As fnmatch(3): * and ? match any characters, / too; [...] one of those in it, [!...] none of them.
export function globExpression(pattern: string): RegExp {
  let text = "";
  for (let i = 0; i < pattern.length; ++i) {
    const c = pattern[i]!;
    const set = c === "[" ? /^\[([!^]?)(\]?[^\]]*)\]/.exec(pattern.slice(i)) : null;
    if (set) {
      text += `[${set[1] ? "^" : ""}${set[2]!.replace(/[\\\]^[]/g, "\\$&")}]`;
      i += set[0].length - 1;
    } else if (c === "*") text += ".*";
    else if (c === "?") text += ".";
    else if (c === "\\" && i + 1 < pattern.length) text += pattern[++i]!.replace(/[^\w]/g, "\\$&");
    else text += c.replace(/[.+^${}()|[\]\\*?/]/g, "\\$&");
  }
  try {
    return new RegExp(`^${text}$`, "su");
  } catch {
    return /$^/; // a set that is none, as [z-a], matches nothing
  }
}

// A text without pattern characters is looked for anywhere; with *, ? or [ it must match the whole name or its last part.
// An empty name matches nothing.
export function textMatcher(pattern: string): (text: string) => boolean {
  if (!/[*?[]/.test(pattern)) return (text) => text !== "" && text.includes(pattern);
  const whole = globExpression(pattern);
  return (text) => text !== "" && (whole.test(text) || whole.test(basename(text)));
}
