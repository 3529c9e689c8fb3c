// Tests of the built page in Chromium (MEMLAB_CHROMIUM, else /usr/bin/chromium).
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: [process.env["MEMLAB_SCREENSHOTS"] ? "test/browser/screenshots.ts" : "test/browser/*.test.ts"],
    testTimeout: 240_000,
    hookTimeout: 120_000,
    fileParallelism: false,
  },
});
