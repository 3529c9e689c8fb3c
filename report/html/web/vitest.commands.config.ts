// The page's own model against the commands (MEMLAB_REPORT), over recordings of GPUs and random ones, without a browser.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: { include: ["test/commands/*.test.ts"], testTimeout: 240_000, hookTimeout: 120_000 },
});
