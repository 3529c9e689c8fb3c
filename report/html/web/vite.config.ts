// Builds dist/index.html, one file: the script and the style are put into it, and the Content-Security-Policy allows
// these two by their hashes and nothing else. dist/licenses.txt has the licenses of what is bundled.
import { createHash } from "node:crypto";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { defineConfig, type Plugin } from "vite";

interface Package {
  name: string;
  version: string;
  license: string;
  text: string;
}

// The packages that the page is made of: `dependencies` of package.json.
function bundledPackages(): Package[] {
  const root = import.meta.dirname;
  const own = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { dependencies?: Record<string, string> };
  return Object.keys(own.dependencies ?? {}).map((name) => {
    const folder = join(root, "node_modules", name);
    const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as {
      version: string;
      license: string;
    };
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file || !existsSync(join(folder, file))) throw new Error(`${name} has no license file`);
    return {
      name,
      version: about.version,
      license: about.license,
      text: readFileSync(join(folder, file), "utf8").trim(),
    };
  });
}

function licenses(): Plugin {
  const id = "virtual:licenses";
  return {
    name: "memlab-licenses",
    resolveId: (source) => (source === id ? `\0${id}` : null),
    load: (source) => (source === `\0${id}` ? `export default ${JSON.stringify(bundledPackages())};` : null),
    generateBundle(_, bundle) {
      const known = bundledPackages();
      for (const item of Object.values(bundle)) {
        if (item.type !== "chunk") continue;
        for (const module of Object.keys(item.modules)) {
          const found = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(module);
          if (found && !known.some((one) => one.name === found[1]))
            this.error(`${found[1]} is bundled, but not among the dependencies: its license would be missing`);
        }
      }
      const source = known
        .map((one) => `${one.name} ${one.version} (${one.license})\n\n${one.text}\n`)
        .join(`\n${"-".repeat(72)}\n\n`);
      this.emitFile({ type: "asset", fileName: "licenses.txt", source });
    },
  };
}

function oneFile(): Plugin {
  const hash = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  return {
    name: "memlab-one-file",
    enforce: "post",
    generateBundle(_, bundle) {
      const page = bundle["index.html"];
      if (page?.type !== "asset") return this.error("no index.html was made");
      let script = "";
      let style = "";
      for (const [name, item] of Object.entries(bundle)) {
        if (item.type === "chunk") script += item.code;
        else if (name.endsWith(".css")) style += String(item.source);
        else continue;
        delete bundle[name];
      }
      // What would end the element early, or hide its end, is written otherwise.
      script = `\n${script.replace(/<\/script/gi, "<\\/script").replace(/<!--/g, "<\\!--")}`;
      style = `\n${style.replace(/<\/style/gi, "<\\/style")}`;
      const policy = [
        "default-src 'none'",
        `script-src ${hash(script)}`,
        `style-src ${hash(style)}`,
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
      ].join("; ");
      page.source = String(page.source)
        .replace(/<script type="module"[^>]*src=[^>]*><\/script>\s*/, "")
        .replace(/<link rel="stylesheet"[^>]*>\s*/, "")
        .replace("MEMLAB_CSP", () => policy)
        .replace("</head>", () => `<style>${style}</style>\n</head>`)
        .replace("</body>", () => `<script>${script}</script>\n</body>`);
      // What memlab-report looks for, to put the data there.
      if (page.source.split("MEMLAB_DATA").length !== 2 || !page.source.includes(">MEMLAB_DATA</script>"))
        this.error("the page must hold >MEMLAB_DATA</script>, and MEMLAB_DATA nowhere else");
    },
  };
}

export default defineConfig({
  base: "./",
  build: {
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    rollupOptions: { output: { format: "iife" } },
  },
  plugins: [licenses(), oneFile()],
});
