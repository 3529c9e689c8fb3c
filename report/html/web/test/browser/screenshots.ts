// Screenshots of every view, to be looked at: MEMLAB_SCREENSHOTS=FOLDER npm run screenshots.
// MEMLAB_PAGE names pages that memlab-report wrote, instead of the made-up recordings. With MEMLAB_PICTURES they are those of
// docs/html.md, of recordings in tests/data read by MEMLAB_REPORT.
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "vitest";
import type { PageData } from "../../src/data";
import { compare, run, single } from "../sample";
import { launch, open, write } from "./browser";

const folder = process.env["MEMLAB_SCREENSHOTS"] ?? "screenshots";
const own = process.env["MEMLAB_PAGE"];
const only = process.env["MEMLAB_ONLY"];

const data = (name: string) => fileURLToPath(new URL(`../../../../../tests/data/${name}`, import.meta.url));

// A page of recordings, with the names that they hold.
function pageOf(title: string, ...recordings: string[]): string {
  const args = ["html", "--json", "--no-source", "--title", title, ...recordings];
  const text = execFileSync(process.env["MEMLAB_REPORT"]!, args, { encoding: "utf8", maxBuffer: 2 ** 28 });
  return write(JSON.parse(text) as PageData);
}

// The report with names beside its event log.
function named(recording: string): string {
  const beside = mkdtempSync(join(tmpdir(), "memlab-pictures-"));
  const to = join(beside, basename(recording));
  copyFileSync(data(`${recording}_named.json`), `${to}.json`);
  copyFileSync(data(`${recording}.memlog`), `${to}.memlog`);
  return `${to}.json`;
}

test.runIf(process.env["MEMLAB_PICTURES"])(
  "the pictures of docs/html.md",
  async () => {
    const browser = await launch();
    const training = pageOf("pytorch_tensors.py training", named("h200/pytorch_tensors"));
    const pair = pageOf(
      "sample_checkpointing: plain and checkpointed",
      data("h100/sample_checkpointing_plain.json"),
      data("h100/sample_checkpointing_checkpointed.json"),
    );
    const ranks = pageOf("ranks_training.py on four GPUs", data("h200/run_of_four_ranks"));
    const wide = { viewport: { width: 1200, height: 800 } };
    const dark = { ...wide, colorScheme: "dark" } as const;
    const phone = { viewport: { width: 400, height: 820 }, isMobile: true, hasTouch: true };
    for (const [name, url, options, hash, click] of [
      ["timeline", training, wide, "view=holders", ".rows .row >> nth=1"],
      ["flame", training, dark, "view=holders&shape=icicle", ""],
      ["over-time", training, dark, "view=over-time", ""],
      ["map", training, wide, "view=map", ""],
      ["compare", pair, wide, "view=changes&shape=icicle", ""],
      ["ranks", ranks, wide, "view=ranks", ""],
      ["phone", training, phone, "view=holders", ".rows .row >> nth=1"],
    ] as const) {
      const { page, said } = await open(browser, `${url}#${hash}`, options);
      if (click) await page.click(click);
      await page.waitForTimeout(250);
      await page.screenshot({ path: join(folder, `${name}.png`) });
      if (said.length > 0) console.log(name, said);
      await page.context().close();
    }
    await browser.close();
  },
  300_000,
);

test.runIf(!process.env["MEMLAB_PICTURES"])(
  "screenshots",
  async () => {
    mkdirSync(folder, { recursive: true });
    const browser = await launch();
    const pages: [string, string][] = own
      ? own.split(":").map((file, i): [string, string] => [`own${i}`, `file://${file}`])
      : [
          ["single", write(single())],
          ["compare", write(compare())],
          ["run", write(run(64))],
        ];
    for (const [name, url] of pages)
      for (const [look, options] of [
        ["light", { colorScheme: "light" }],
        ["dark", { colorScheme: "dark" }],
        ["phone", { viewport: { width: 400, height: 820 }, deviceScaleFactor: 2, colorScheme: "light" }],
      ] as const) {
        const { page, said } = await open(browser, url, options);
        const views = await page.locator("[role=tab]").evaluateAll((tabs) => tabs.map((tab) => tab.id.slice(4)));
        const shots: [string, string][] = views.map((view) => [view, `view=${view}`]);
        if (name === "single")
          shots.push(
            ["icicle", "view=holders&shape=icicle"],
            ["flame-up", "view=holders&shape=flame&bottom-up=1"],
            ["range", "view=changes&from=3000000000&to=5150000000"],
            ["range-flame", "view=changes&shape=icicle&from=3000000000&to=5150000000"],
            ["zoom", "view=over-time&zoom-from=2000000000&zoom-to=3000000000&group=place"],
          );
        if (name === "compare") shots.push(["flame", "view=changes&shape=icicle"]);
        for (const [shot, hash] of shots) {
          if (only && !`${name}-${shot}-${look}`.includes(only)) continue;
          await page.goto(`${url}#${hash}`);
          await page.waitForTimeout(250);
          await page.screenshot({ path: join(folder, `${name}-${shot}-${look}.png`), fullPage: true });
        }
        if (said.length > 0) console.log(name, look, said);
        await page.context().close();
      }
    await browser.close();
  },
  300_000,
);
