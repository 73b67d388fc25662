import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// Relative addresses, so that any base path works; names without hashes, so that a rebuild changes only what changed.
// The server checks freshness with ETags.
export default defineConfig({
  base: "./",
  plugins: [svelte()],
  build: {
    outDir: "../src/rowlock/browser/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: false,
    rollupOptions: {
      output: {
        entryFileNames: "assets/[name].js",
        chunkFileNames: "assets/[name].js",
        assetFileNames: "assets/[name][extname]",
      },
    },
  },
  worker: {
    format: "es",
    rollupOptions: { output: { entryFileNames: "assets/[name].js", chunkFileNames: "assets/worker-[name].js" } },
  },
});
