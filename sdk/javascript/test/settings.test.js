import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { check, strict } from "../schema.js";

// The package for Python must give the same messages in these cases.
const cases = JSON.parse(readFileSync(new URL("../../settings-cases.json", import.meta.url), "utf8"));

for (const { name, schema, value, result, errors } of cases) {
  test(name, () => {
    const found = check(strict(schema), value).map(({ pointer, message }) => [pointer, message]);
    assert.deepEqual(found, errors);
    if (result) assert.deepEqual(value, result);
  });
}

test("a schema with unsupported keywords is refused", () => {
  for (const [schema, message] of [
    [{ type: "text" }, /settings: `type` is "text"; write one of object, array/],
    [{}, /`type` is undefined/],
    [{ type: "object", properties: { a: { type: "string", format: "uri" } } }, /settings\.a: `format` is not checked/],
    [{ type: "object", properties: {}, required: ["a"] }, /`a` is required, and no property/],
    [{ type: "array", items: { type: "boolean", minimum: 1 } }, /settings\.items: `minimum` is not checked/],
    [{ type: "object", additionalProperties: { type: "any" } }, /settings\.additionalProperties: `type`/],
  ]) {
    assert.throws(() => strict(schema), message);
  }
});
