import { defineConfig } from "vitest/config";

// One fork: the native side is one resource, and two cores are better spent inside the kernels than on
// two half-starved test files.
export default defineConfig({
  // The package by its own name, without a build.
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
