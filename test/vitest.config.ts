import { defineConfig } from "vitest/config";

// Runs one test file at a time: the kernels use all cores, and a second file would only slow both.
export default defineConfig({
  // `pocket/context` is resolved to the source, so that no build is needed.
  resolve: { alias: { "pocket/context": new URL("../src/context/index.ts", import.meta.url).pathname } },
  test: {
    root: new URL("..", import.meta.url).pathname,
    include: ["test/**/*.test.ts"],
    setupFiles: ["test/support/seed.ts"],
    pool: "forks",
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
