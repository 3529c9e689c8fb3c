// What holds for the page of every kind of recording: each view is shown quietly, is accessible and fits a phone.
// Run by generated.test.ts and recorded.test.ts.
import type { Browser } from "playwright-core";
import { describe, expect, test } from "vitest";
import { drawn, inaccessible, open, views } from "./browser";

// Accessibility is that of the views in `accessible`, if given, else of all.
export function everyView(browser: () => Browser, name: string, url: string, accessible?: string[]): void {
  describe(`the ${name} page`, () => {
    test("shows every view quietly, asks for nothing, and is accessible", async () => {
      for (const colorScheme of ["light", "dark"] as const) {
        const { page, said, requests } = await open(browser(), url, { colorScheme });
        for (const view of await views(page)) {
          await page.click(`#tab-${view}`);
          for (const shape of view === "holders" || view === "changes" ? ["Table", "Icicle", "Flame"] : [""]) {
            if (shape) await page.click(`.choice >> text="${shape}"`);
            await drawn(page);
            expect((await page.locator(".panel").textContent())!.length).toBeGreaterThan(20);
            if (accessible && !accessible.includes(view)) continue;
            expect((await inaccessible(page)).map((one) => `${view} ${shape}: ${one}`)).toEqual([]);
          }
          if (view === "holders" || view === "changes") await page.click('.choice >> text="Table"');
        }
        expect(await page.evaluate(() => "hacked" in window)).toBe(false);
        expect(said).toEqual([]);
        expect(requests.filter((one) => !one.startsWith("data:"))).toEqual([url]);
        await page.context().close();
      }
    });

    test("fits a phone", async () => {
      const { page, said } = await open(browser(), url, {
        viewport: { width: 400, height: 820 },
        hasTouch: true,
        isMobile: true,
      });
      for (const view of await views(page)) {
        await page.locator(`#tab-${view}`).click();
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        expect(`${view} ${wide}`).toBe(`${view} 400`);
      }
      expect(said).toEqual([]);
      await page.context().close();
    });
  });
}
