import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";

const HERE = import.meta.dirname;

/** Puts the script, the style and their hashes into `page.template.html`, and emits that one file alone. */
function onePage(): Plugin {
  return {
    name: "one-page",
    enforce: "post",
    generateBundle(_options, bundle) {
      let script = "";
      let style = "";
      for (const [name, file] of Object.entries(bundle)) {
        if (file.type === "chunk") script += file.code;
        else if (name.endsWith(".css")) style += file.source;
        delete bundle[name];
      }
      script = script.trim();
      style = style.trim();
      if (/<\/script|<!--/i.test(script) || /<\/style/i.test(style)) this.error("the bundle would end its own element");
      const hash = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
      const slots: Record<string, string> = {
        policy: [
          "default-src 'none'",
          `script-src ${hash(script)}`,
          `style-src ${hash(style)}`,
          "base-uri 'none'",
          "form-action 'none'",
        ].join("; "),
        style,
        script,
      };
      const template = readFileSync(`${HERE}/page.template.html`, "utf-8");
      const page = template.replace(/\{\{(policy|style|script)\}\}/g, (_, slot: string) => slots[slot]!);
      this.emitFile({ type: "asset", fileName: "page.html", source: page });
    },
  };
}

export default defineConfig({
  plugins: [onePage()],
  build: {
    target: ["chrome111", "firefox115", "safari16.4"],
    outDir: process.env["PAGE_DIR"] ?? `${HERE}/../src/unstall/document`,
    emptyOutDir: false,
    reportCompressedSize: false,
    lib: { entry: `${HERE}/src/main.ts`, formats: ["iife"], name: "unstall", cssFileName: "page" },
  },
});
