// What the page shows as the commands say it: each document in it is the command's own, at each level.
import { Comparison } from "./differences";
import { everyRecording } from "./every_recording";
import { document, levels, type Recorded, recordings } from "./memlab";
import { open } from "./page";

// The documents that a page may have: those of a recording that lacks nothing.
let named: Promise<string[]> | undefined;
function commands(): Promise<string[]> {
  const { path } = recordings().find(({ name }) => name === "h200/pytorch_scopes.memlog")!;
  named ??= open(path).then(({ model }) => Object.keys(model.source.documents));
  return named;
}

// The first part of two documents that differs, as a path; "" where they are the same.
function difference(page: unknown, command: unknown, path = "/"): string {
  if (typeof page !== "object" || typeof command !== "object" || page === null || command === null)
    return Object.is(page, command) ? "" : `${path} ${JSON.stringify(page)} ${JSON.stringify(command)}`;
  const [left, right] = [page as Record<string, unknown>, command as Record<string, unknown>];
  for (const key of new Set([...Object.keys(left), ...Object.keys(right)])) {
    const found = difference(left[key], right[key], `${path}${key}/`);
    if (found) return found;
  }
  return "";
}

async function check(recording: Recorded): Promise<Comparison> {
  const to = new Comparison(recording.name, recording.seed);
  const { path } = recording;
  for (const level of await levels(path)) {
    const args = ["--level", level, path];
    const { documents } = (await open(...args)).model.source;
    for (const command of await commands()) {
      // A list has at most 50 places in the page.
      const top = command === "ledger" ? [] : ["--top", "50"];
      const told = await document<{ reports: unknown[] }>(command, ...top, ...args);
      const whole = told?.reports[0] as Record<string, unknown> | undefined;
      if (command === "summary") {
        // The page has none of its own use for them, and their names may be most of the document.
        delete whole?.marks;
        delete whole?.labels;
      }
      const found = difference(documents[command] ?? null, whole ?? null);
      to.same(`documents of ${command}`, `${level} ${found.split(" ")[0]}`, found, "");
    }
  }
  return to;
}

everyRecording("documents", check);
