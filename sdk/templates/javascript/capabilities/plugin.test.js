import assert from "node:assert/strict";
import { test } from "node:test";

import { configure, create } from "admittance/testing";

import * as component from "../src/plugin.js";

// Native tests have no cluster: the cases in cases.yaml test lookups.
test("an object without a namespace is allowed", () => {
  const plugin = configure(component, { label: "team" });
  const node = { apiVersion: "v1", kind: "Node", metadata: { name: "a" } };
  assert.ok(plugin.admit(create(node)).allowed);
});

test("every mistake in the settings is reported", () => {
  assert.throws(() => configure(component, { label: "" }), (error) => {
    assert.deepEqual(error.errors.map((mistake) => mistake.pointer), ["/label"]);
    return true;
  });
});
