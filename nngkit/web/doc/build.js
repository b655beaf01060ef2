// Builds the page: node build.js FOLDER. Output: one script, the style, the icon and the licences of the bundled packages.

import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2];
if (!out) throw new Error("usage: node build.js FOLDER");

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const { metafile } = await build({
  absWorkingDir: here, entryPoints: ["page/main.js"], outfile: join(out, "page.js"), bundle: true, minify: true, format: "esm",
  target: ["chrome100", "firefox100", "safari16"], charset: "utf8", legalComments: "none", metafile: true, logLevel: "warning",
});
for (const file of ["style.css", "icon.svg"]) copyFileSync(join(here, "page", file), join(out, file));

// The bundled packages' licences require a copy.
const packages = new Set(Object.keys(metafile.inputs).map((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]).filter(Boolean));
const licences = [...packages].sort().map((name) => {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((one) => /^licen[sc]e(\.|$)/i.test(one));
  return `${name} ${version} (${license})\n\n${file && existsSync(join(folder, file)) ? readFileSync(join(folder, file), "utf8").trim() : license}\n`;
});
writeFileSync(join(out, "licenses.txt"), licences.join(`\n${"-".repeat(80)}\n\n`));

copyFileSync(join(here, "page", "index.html"), join(out, "index.html")); // last: its presence means a complete build
