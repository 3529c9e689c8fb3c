// Screenshots of every view, to be looked at: MEMLAB_SCREENSHOTS=FOLDER npm run screenshots.
// MEMLAB_PAGE names pages that memlab-report wrote, instead of the made-up recordings.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "vitest";
import { compare, run, single } from "../sample";
import { launch, open, write } from "./browser";

const folder = process.env["MEMLAB_SCREENSHOTS"] ?? "screenshots";
const own = process.env["MEMLAB_PAGE"];
const only = process.env["MEMLAB_ONLY"];

test("screenshots", async () => {
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
}, 300_000);
