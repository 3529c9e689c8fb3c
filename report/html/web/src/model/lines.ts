// Source lines with what they held: a line stands for everything that it called, as in `memlab-report lines`.
import type { Figures } from "./recording";
import type { SiteTable } from "./site_table";

export interface Line {
  number: number;
  code: string | null;
  held: number;
  blocks: number;
  allocated: number;
  allocations: number;
}

export interface Lines {
  of: Map<number, Line>;
  held: number;
  allocated: number;
}

// The lines of each file that a device's call stacks go through; held: at the moment of the figures.
export function linesOf(table: SiteTable, figures: Figures, device: number): Map<string, Lines> {
  const files = new Map<string, Lines>();
  for (let site = 0; site < table.count; ++site) {
    if (table.device[site] !== device) continue;
    const seen = new Set<string>();
    const seenFiles = new Set<string>();
    for (const frame of table.stacks[site]!) {
      const path = table.file(frame);
      const number = table.line(frame);
      if (!path || number <= 0) continue;
      let file = files.get(path);
      if (!file) files.set(path, (file = { of: new Map(), held: 0, allocated: 0 }));
      // A line that calls its own function again counts once.
      if (!seenFiles.has(path)) {
        seenFiles.add(path);
        file.held += figures.bytes[site]!;
        file.allocated += table.allocatedBytes[site]!;
      }
      const key = `${number} ${path}`;
      if (seen.has(key)) continue;
      seen.add(key);
      let line = file.of.get(number);
      if (!line) file.of.set(number, (line = { number, code: null, held: 0, blocks: 0, allocated: 0, allocations: 0 }));
      line.held += figures.bytes[site]!;
      line.blocks += figures.blocks[site]!;
      line.allocated += table.allocatedBytes[site]!;
      line.allocations += table.allocations[site]!;
    }
  }
  return files;
}
