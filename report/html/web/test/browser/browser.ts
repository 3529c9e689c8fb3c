// Chromium for the tests: pages from file://, everything that the console says is kept.
import { execFileSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { type Browser, type BrowserContextOptions, type Page, chromium } from "playwright-core";
import type { PageData } from "../../src/data";
import { builtPage, withData } from "../sample";

const folder = mkdtempSync(join(tmpdir(), "memlab-page-"));
let pages = 0;

export function launch(): Promise<Browser> {
  return chromium.launch({
    executablePath: process.env["MEMLAB_CHROMIUM"] ?? "/usr/bin/chromium",
    args: ["--no-sandbox"],
  });
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
