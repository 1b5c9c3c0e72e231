import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const page = readFileSync(new URL("../../../docs/authors-javascript.md", import.meta.url), "utf8");
const blocks = [...page.matchAll(/^```javascript\n(.*?)^```$/gms)].map(([, code]) => code);

test("the examples of the documentation run", () => {
  assert(blocks.length > 3);
  for (const code of blocks) {
    // Only files in the directory of the package can import it by its name.
    const cwd = new URL("..", import.meta.url);
    const { status, stderr } = spawnSync(process.execPath, ["--input-type=module", "--eval", code], { cwd });
    assert.equal(status, 0, `${stderr}${code}`);
  }
});
