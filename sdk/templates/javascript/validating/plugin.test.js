import assert from "node:assert/strict";
import { test } from "node:test";

import { configure, create } from "admittance/testing";

import * as component from "../src/plugin.js";

test("an object without the label is refused", () => {
  const plugin = configure(component, { label: "team" });
  for (const object of [{}, { metadata: null }, { metadata: { name: "web", labels: null } }]) {
    const outcome = plugin.admit(create(object));
    assert.equal(outcome.denial?.message, "metadata.labels: `team` is missing; add it");
  }
});

test("every mistake in the settings is reported", () => {
  assert.throws(() => configure(component, { label: "", values: [""] }), (error) => {
    const places = error.errors.map((mistake) => mistake.pointer);
    assert.deepEqual(places, ["/label", "/values/0"]);
    return true;
  });
});
