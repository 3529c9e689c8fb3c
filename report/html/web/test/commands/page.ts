// The page of a recording, without a browser: the data that memlab-report html puts into it, and the page's own model.
import type { PageData } from "../../src/data";
import { matchFrames, usedSites } from "../../src/model/filter";
import { withoutDirections } from "../../src/model/load";
import { type PlaceDocument, placeName, placeWhere } from "../../src/model/place_names";
import { type Place, places } from "../../src/model/places";
import { curveDevice, greatestMoment, RecordingModel } from "../../src/model/recording";
import { type SiteTable } from "../../src/model/site_table";
import { add, type Rows } from "./differences";
import { printed } from "./memlab";

export interface Looked {
  filter?: string;
  skip?: string;
}

export class Page {
  readonly models: RecordingModel[];

  constructor(readonly data: PageData) {
    this.models = data.recordings.map((one) => new RecordingModel(one));
  }

  get model(): RecordingModel {
    return this.models[0]!;
  }

  // As the page is opened: the first moment at which a device held most.
  peak(device: number): number {
    return greatestMoment(this.model.totals(device), 0, this.model.moments.length - 1);
  }

  get end(): number {
    return this.model.moments.length - 1;
  }

  places(device: number, moment: number, { filter = "", skip = "" }: Looked = {}): Place[] {
    const table = this.model.sites;
    return places(table, this.model.figures(moment), null, {
      use: usedSites(table, device, filter),
      skip: matchFrames(table, skip, true),
    });
  }
}

const pages = new Map<string, Promise<Page>>();

// The page of a recording, with the options of memlab-report html. Asked for twice, it is made once.
export function open(...args: string[]): Promise<Page> {
  const key = args.join("\0");
  let page = pages.get(key);
  if (!page) {
    page = printed("html", "--json", "--no-symbols", ...args).then((text) => {
      if (!text) throw new Error(`memlab-report html ${args.join(" ")}: refused`);
      return new Page(JSON.parse(withoutDirections(text.toString("utf8"))) as PageData);
    });
    if (pages.size > 8) pages.delete(pages.keys().next().value!);
    pages.set(key, page);
  }
  return page;
}

// Kinds that the allocated curve does not have. The page shows each as a device beside the GPU.
export const hostKinds = new Set(["managed", "pinned", "ipc_import"]);

export function besideOf(page: Page, device: number): number[] {
  return page.model.devices
    .map(({ index }) => index)
    .filter((index) => index !== device && index >= 0 && curveDevice(index) === device);
}

// Patterns that some of the recording's sites match, of each form that --filter has.
export function patterns(table: SiteTable, choice: (below: number) => number): { form: string; pattern: string }[] {
  const functions = new Set<string>();
  const nameless = new Set<string>();
  const files = new Set<string>();
  const modules = new Set<string>();
  for (const stack of table.stacks)
    for (const frame of stack) {
      const name = table.functionName(frame);
      (/\+0x[0-9a-f]+$/.test(name) ? nameless : functions).add(name);
      files.add(table.file(frame));
      modules.add(table.moduleName(frame));
    }
  const one = (set: Set<string>): string => {
    const plain = [...set].filter((text) => /^[^*?[\]\\=]+$/.test(text));
    return plain[choice(plain.length)] ?? "";
  };
  const last = (path: string) => path.slice(path.lastIndexOf("/") + 1);
  const named = one(functions);
  const module = one(modules);
  const kind = table.text(table.kind[choice(table.count)]!);
  const found = [
    { form: "func=", pattern: named && `func=${named}` },
    { form: "func= of no name", pattern: one(nameless) && `func=${one(nameless)}` },
    { form: "file=", pattern: one(files) && `file=${last(one(files))}` },
    { form: "module=", pattern: module && `module=${module}` },
    { form: "text", pattern: named.slice(1, 6) },
    { form: "text in capitals", pattern: module.toUpperCase() === module ? "" : module.toUpperCase() },
    { form: "*", pattern: module && `*${module.slice(2)}` },
    { form: "[]", pattern: module && `module=[${module[0]}]${module.slice(1)}` },
    { form: "kind=", pattern: kind && `kind=${kind}` },
    { form: "text of a kind", pattern: kind },
  ];
  return found.filter(({ pattern }) => pattern !== "");
}

// A place as the page's table has it, and as a command's document.
export function placeKey(
  table: SiteTable,
  { frame, through, kind }: Pick<Place, "frame" | "through" | "kind">,
): string {
  if (frame < 0) return documentKey(null, kind);
  return [table.functionName(frame), table.location(frame, true), through && `via ${through}`, kind && `[${kind}]`]
    .filter(Boolean)
    .join("  ");
}

export function documentKey(place: PlaceDocument | null, kind: string | null): string {
  if (!place) return ["[no stack]", kind && `[${kind}]`].filter(Boolean).join("  ");
  return [placeName(place), placeWhere(place), place.through && `via ${place.through}`, kind && `[${kind}]`]
    .filter(Boolean)
    .join("  ");
}

export function rowsOf(table: SiteTable, list: Place[], values: (place: Place) => number[]): Rows {
  const rows: Rows = new Map();
  for (const place of list) add(rows, placeKey(table, place), ...values(place));
  return rows;
}
