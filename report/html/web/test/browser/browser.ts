// Chromium for the tests: pages from file://, everything that the console says is kept.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { type Browser, type BrowserContextOptions, type Page, chromium } from "playwright-core";
import type { PageData } from "../../src/data";
import { afterAll, beforeAll } from "vitest";
import { builtPage, single, withData } from "../sample";

const folder = mkdtempSync(join(tmpdir(), "memlab-page-"));
let pages = 0;

// More of everything than most recordings have.
export const large = (): PageData => single({ steps: 400, sites: 3000, moments: 2048, layers: 24 });

export function launch(): Promise<Browser> {
  return chromium.launch({
    executablePath: process.env["MEMLAB_CHROMIUM"] ?? "/usr/bin/chromium",
    args: ["--no-sandbox"],
  });
}

// One for all tests of a file.
export function oneBrowser(): () => Browser {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launch();
  });
  afterAll(async () => {
    await browser.close();
  });
  return () => browser;
}

// A file with the page and the data in it; its URL.
export function write(data: PageData | string): string {
  const file = join(folder, `page${pages++}.html`);
  writeFileSync(file, typeof data === "string" ? data : withData(builtPage(), data));
  return pathToFileURL(file).href;
}

// What MEMLAB_REPORT, a memlab-report, prints of a recording in tests/data.
export function reported<T>(recording: string, ...command: string[]): T {
  const path = fileURLToPath(new URL(`../../../../../tests/data/${recording}`, import.meta.url));
  const text = execFileSync(process.env["MEMLAB_REPORT"]!, [...command, "--json", "--no-symbols", path], {
    encoding: "utf8",
    maxBuffer: 256 * 1024 * 1024,
  });
  return JSON.parse(text) as T;
}

export interface Opened {
  page: Page;
  said: string[];
  requests: string[];
}

export async function open(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Opened> {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 900 },
    reducedMotion: "reduce",
    ...options,
  });
  const page = await context.newPage();
  const said: string[] = [];
  const requests: string[] = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) said.push(message.text());
  });
  page.on("pageerror", (error) => said.push(`${error.name}: ${error.message}`));
  page.on("request", (request) => requests.push(request.url()));
  await page.goto(url);
  await page.waitForSelector("html[data-ready], .failed");
  return { page, said, requests };
}

export const views = (page: Page): Promise<string[]> =>
  page.locator("[role=tab]").evaluateAll((tabs) => tabs.map((tab) => tab.id.slice(4)));

export const heading = (page: Page): Promise<string | null> => page.locator(".view .heading").first().textContent();

// Returns when what was changed is drawn.
export const drawn = (page: Page): Promise<void> =>
  page.evaluate(() => new Promise<void>((done) => requestAnimationFrame(() => requestAnimationFrame(() => done()))));

interface Violation {
  id: string;
  nodes: { html: string; failureSummary: string }[];
}

interface WithAxe {
  axe?: { run: (options: object) => Promise<{ violations: Violation[] }> };
}

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

// What axe has against the page as it is. It is given to a page once: it is large, and compiled as it is used.
export async function inaccessible(page: Page): Promise<string[]> {
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(axe);
  const violations = await page.evaluate(
    async () => (await (globalThis as WithAxe).axe!.run({ resultTypes: ["violations"] })).violations,
  );
  return violations.map((one) => `${one.id} ${one.nodes[0]?.html.slice(0, 200)} ${one.nodes[0]?.failureSummary}`);
}
