// What is seen at once: tables, comparisons and details above the fold, on a small laptop and on a phone. And what one does
// with them: another metric, from function to function, a rank that is not there.
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import { bytes } from "../../src/model/format";
import { RecordingModel } from "../../src/model/recording";
import { compare, run, single } from "../sample";
import { heading, oneBrowser, open, write } from "./browser";

const small = single();
const pages = { single: write(small), compare: write(compare()), run: write(run(8)) };
const browser = oneBrowser();

const screens = [
  ["a small laptop", { viewport: { width: 1280, height: 800 } }],
  ["a phone", { viewport: { width: 400, height: 820 }, hasTouch: true, isMobile: true }],
] as const;

// Its top, and how much of it is within the screen.
async function seen(page: Page, selector: string): Promise<{ top: number; height: number }> {
  const box = (await page.locator(selector).first().boundingBox())!;
  const { width, height } = page.viewportSize()!;
  expect(box.x).toBeGreaterThanOrEqual(0);
  expect(box.x + box.width).toBeLessThanOrEqual(width + 1);
  return { top: box.y, height: Math.min(height, box.y + box.height) - Math.max(0, box.y) };
}

describe.each(screens)("on %s", (name, options) => {
  test.each(["single", "compare", "run"] as const)("the first rows of %s are above the fold", async (kind) => {
    const { page } = await open(
      browser(),
      `${pages[kind]}#view=${kind === "compare" ? "changes" : "holders"}`,
      options,
    );
    expect((await seen(page, ".table .head")).height).toBeGreaterThan(30);
    const rows = page.locator(".rows .row");
    for (let i = 0; i < 2; ++i) {
      const box = (await rows.nth(i).boundingBox())!;
      expect(box.y + box.height).toBeLessThanOrEqual(options.viewport.height);
    }
    await page.context().close();
  });

  test.each(["single", "compare"] as const)("details of %s open above the fold", async (kind) => {
    const { page } = await open(browser(), pages[kind], options);
    await page.locator(".rows .row").first().click();
    const { top, height } = await seen(page, ".details");
    expect(top).toBeGreaterThanOrEqual(0);
    expect(height).toBeGreaterThan(180);
    // What it is about, and its figures, without scrolling.
    for (const part of [".details h2", ".details dd"]) expect((await seen(page, part)).height).toBeGreaterThan(10);
    expect((await seen(page, ".table .head")).height).toBeGreaterThan(30);
    await page.click(".details .close");
    expect(await page.locator(".details").isVisible()).toBe(false);
    await page.context().close();
  });

  test("the areas of Over time, with what they stand for, are above the fold", async () => {
    const { page } = await open(browser(), `${pages.single}#view=over-time`, options);
    expect((await seen(page, ".stacked canvas")).height).toBeGreaterThan(200);
    if (name !== "a phone") expect((await seen(page, ".legend button")).height).toBeGreaterThan(20);
    await page.context().close();
  });

  test("line numbers are not cut", async () => {
    const { page } = await open(browser(), pages.single, options);
    const cut = await page.locator(".rows .at-line").evaluateAll((lines) =>
      lines.flatMap((line) => {
        const cell = line.closest(".cell")!.getBoundingClientRect();
        const own = line.getBoundingClientRect();
        return own.right > cell.right + 1 || own.width < 8 ? [line.textContent] : [];
      }),
    );
    expect(cut).toEqual([]);
    expect(await page.locator(".rows .at-line").count()).toBeGreaterThan(3);
    await page.context().close();
  });
});

test("a metric changes the table, the graph and the address", async () => {
  const model = new RecordingModel(small.recordings[0]!);
  const use = (site: number) => model.sites.device[site] === 0;
  const sum = (values: Float64Array) => values.reduce((all, value, site) => all + (use(site) ? value : 0), 0);
  const { page, said } = await open(browser(), pages.single);
  await page.selectOption(".controls label:has-text('Metric') select", "churn");
  await expect.poll(() => heading(page)).toContain(`Allocated in the run: ${bytes(sum(model.sites.allocatedBytes))}`);
  expect(await page.locator(".table .head").textContent()).toMatch(/^in the run ▼/);
  await expect.poll(() => page.url()).toContain("metric=churn");
  await page.click('.choice >> text="Icicle"');
  expect(await page.locator(".flame-status").textContent()).toContain(bytes(sum(model.sites.allocatedBytes)));
  await page.selectOption(".controls label:has-text('Metric') select", "leaked");
  expect(await page.locator(".flame-status").textContent()).toContain(bytes(sum(model.sites.leakedBytes)));
  await page.click("#tab-map");
  expect(await page.locator(".legend .value").first().textContent()).toMatch(/MiB|GiB/);
  await page.selectOption("label:has-text('Colour by') select", "count");
  expect(await page.locator(".legend .value").first().textContent()).toMatch(/^[\d,]+$/);
  // By how much something changed is known of what is held alone.
  await page.click("#tab-changes");
  expect(await page.locator(".controls label:has-text('Metric') select option").count()).toBe(2);
  expect(said).toEqual([]);
  await page.context().close();
});

test("one goes from callers to callees", async () => {
  const { page } = await open(browser(), pages.single);
  await page.locator(".rows .row").first().click();
  const calls = page.locator(".details .callers");
  const first = await calls.locator("h3 .function").textContent();
  const caller = (await calls.locator(".calls .name").first().textContent())!;
  await calls.locator(".calls .name").first().click();
  expect(await calls.locator("h3 .function").textContent()).toBe(caller);
  expect(await calls.locator(".calls .name").allTextContents()).toContain(first);
  await calls.locator("h3 button").click();
  expect(await calls.locator("h3 .function").textContent()).toBe(first);
  // Of the call that a graph is zoomed to, too.
  await page.click('.choice >> text="Icicle"');
  await page.locator(".flame-scroller").focus();
  for (let i = 0; i < 5; ++i) await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  const zoomed = await page.locator(".trail [aria-current]").textContent();
  expect(await page.locator(".beside > .callers h3 .function").textContent()).toBe(zoomed);
  await page.context().close();
});

test("a rank that is not there in full is said to be so", async () => {
  const data = run(8);
  const { page } = await open(browser(), `${write(data)}#view=ranks`);
  const missing = data.run!.ranks.find((rank) => rank.recording === null)!;
  await page.locator(`.rows .row:has(.cell:text-is("${missing.rank}"))`).first().click();
  expect(await page.locator(".panel [role=status]").first().textContent()).toContain(`Rank ${missing.rank}, `);
  expect(await page.locator(".panel [role=status]").first().textContent()).toContain("not in this page in full");
  await page.context().close();
});

test("of a report alone nothing is drawn over time", async () => {
  const alone = { ...small, recordings: [{ ...small.recordings[0]!, moment_ns: 0 }] };
  const { page, said } = await open(browser(), `${write(alone)}#view=over-time`);
  expect(await page.locator(".stacked").isVisible()).toBe(false);
  expect(await heading(page)).toContain("event log");
  await page.click("#tab-holders");
  await page.locator(".rows .row").first().click();
  expect(await page.locator(".details h2").count()).toBe(1);
  expect(await page.locator(".details .spark").count()).toBe(0);
  expect(said).toEqual([]);
  await page.context().close();
});
