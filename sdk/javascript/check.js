// Checks in a build that the host can call a plugin: `node vendor/admittance/check.js src/plugin.js`.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [path] = process.argv.slice(2);
const component = await import(pathToFileURL(resolve(path)));
const missing = ["describe", "configure", "admit"].filter((name) => typeof component[name] !== "function");
if (missing.length > 0) {
  console.error(
    `${path} does not export ${missing.join(", ")}; write \`export const { describe, configure, admit } = plugin(...)\``,
  );
  process.exitCode = 1;
}
