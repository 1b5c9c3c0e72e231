import assert from "node:assert/strict";
import { test } from "node:test";

import { configure, create } from "admittance/testing";

import * as component from "../src/plugin.js";

const plugin = configure(component, { label: "team", value: "unknown" });
const pod = (labels) => ({ apiVersion: "v1", kind: "Pod", metadata: { name: "web", namespace: "shop", labels } });

test("an object without the label gets it", () => {
  const outcome = plugin.admit(create(pod({})));
  assert.deepEqual(outcome.patch, [{ op: "add", path: "/metadata/labels/team", value: "unknown" }]);
});

test("an object without labels gets them", () => {
  for (const object of [{}, { metadata: null }, { metadata: { name: "web", labels: null } }]) {
    assert.match(JSON.stringify(plugin.admit(create(object)).patch), /"team":"unknown"/);
  }
});

test("a label keeps its value", () => {
  assert.deepEqual(plugin.admit(create(pod({ team: "shop" }))).patch, []);
});
