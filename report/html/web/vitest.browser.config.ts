// Tests of the built page in Chromium (MEMLAB_CHROMIUM, else /usr/bin/chromium); of recordings with MEMLAB_REPORT.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: [process.env["MEMLAB_SCREENSHOTS"] ? "test/browser/screenshots.ts" : "test/browser/*.test.ts"],
    exclude: process.env["MEMLAB_REPORT"] ? [] : ["test/browser/recorded.test.ts"],
    testTimeout: 240_000,
    hookTimeout: 120_000,
    fileParallelism: false,
  },
});
