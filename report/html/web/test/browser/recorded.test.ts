// Every view of recordings of GPUs in Chromium, and their figures beside those of memlab-report (MEMLAB_REPORT).
import { expect, test } from "vitest";
import type { PageData } from "../../src/data";
import { bytes } from "../../src/model/format";
import { heading, oneBrowser, open, reported, write } from "./browser";
import { everyView } from "./every_view";

// Steps and scopes; tensors with marks, beside a ledger; an audit and kernels; ranks.
const recordings = [
  "h200/sample_leak.memlog",
  "h200/pytorch_tensors.memlog",
  "h200/sample_checkpointing_kernels.memlog",
  "h200/run_of_four_ranks",
];
const pages = Object.fromEntries(recordings.map((path) => [path, write(reported<PageData>(path, "html"))]));
const browser = oneBrowser();
for (const path of recordings) everyView(browser, path, pages[path]!);

test("figures of a real recording are those of the summary", async () => {
  interface Summary {
    reports: { devices: { label: string; curves: { allocated: { peak_bytes: number; at_end_bytes: number } } }[] }[];
  }
  for (const recording of ["h200/sample_leak.memlog", "h200/pytorch_tensors.memlog"]) {
    const { allocated } = reported<Summary>(recording).reports[0]!.devices[0]!.curves;
    const { page } = await open(browser(), pages[recording]!);
    expect(await heading(page)).toContain(bytes(allocated.peak_bytes));
    await page.click('button:text-is("End")');
    await expect.poll(() => heading(page)).toContain(bytes(allocated.at_end_bytes));
    await page.context().close();
  }
});

test("the summary has the audit, and what ran at the peak", async () => {
  const { page } = await open(browser(), pages["h200/sample_checkpointing_kernels.memlog"]!);
  await page.click("#tab-recording");
  const text = (await page.locator(".panel").textContent())!;
  expect(text).toContain("18 allocations of the driver, 36.00 MiB: memlab made or recorded each of them");
  expect(text).toMatch(/backward\(float const\*.*46\.2 us12/);
  await page.context().close();
});

test("the median peak of four ranks is between the second and the third", async () => {
  interface Merge {
    ranks: { allocated_peak_bytes: number }[];
  }
  const peaks = reported<Merge>("h200/run_of_four_ranks", "merge")
    .ranks.map((rank) => rank.allocated_peak_bytes)
    .sort((a, b) => a - b);
  const { page } = await open(browser(), pages["h200/run_of_four_ranks"]!);
  expect(await page.locator('dt:text-is("median peak") + dd').textContent()).toBe(bytes((peaks[1]! + peaks[2]!) / 2));
  await page.context().close();
});
