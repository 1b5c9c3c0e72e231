import assert from "node:assert/strict";
import { test } from "node:test";

import { Patch, SettingsErrors, allow, deny, mutate, patch, plugin, pointer, replace } from "admittance";
import { HttpError, send } from "admittance/http";
import { get } from "admittance/cluster";
import { configure, connect, create, remove, update } from "admittance/testing";
import { HttpResponse, requestOf } from "../message.js";

const pod = (labels) => ({ apiVersion: "v1", kind: "Pod", metadata: { name: "web", namespace: "shop", labels } });

/** A plugin with only this hook. */
const only = (admit, more = {}) =>
  configure(plugin({ name: "only", version: "0.1.0", summary: "For a test.", mutates: true, admit, ...more }));

test("the description has the form of the contract", () => {
  const { describe } = plugin({
    name: "a",
    version: "1.2.3",
    summary: "A.",
    resources: ["v1/pods", "apps/v1/deployments"],
    capabilities: { cluster: ["v1/Node"], http: ["*"] },
    settings: { type: "object", properties: { a: { type: "object", properties: {} } } },
    admit: allow,
  });
  assert.deepEqual(describe(), {
    name: "a",
    version: "1.2.3",
    summary: "A.",
    mutates: false,
    resources: [
      { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"] },
      { apiGroups: ["apps"], apiVersions: ["v1"], resources: ["deployments"] },
    ],
    settingsSchema:
      '{"type":"object","properties":{"a":{"type":"object","properties":{},"additionalProperties":false}},"additionalProperties":false}',
    capabilities: [
      { tag: "cluster", val: "v1/Node" },
      { tag: "http", val: "*" },
    ],
  });
});

test("an invalid definition of a plugin is refused", () => {
  const whole = { name: "a", version: "0.1.0", summary: "A.", admit: allow };
  for (const [definition, message] of [
    [{ ...whole, resource: [] }, /`resource` is not a field; use name, version/],
    [{ ...whole, admit: undefined }, /`admit` is missing/],
    [{ ...whole, admit: async () => allow() }, /`admit` is async; a plugin answers at once/],
    [{ ...whole, resources: ["pods"] }, /`pods` is not a resource; write `v1\/pods`/],
    [{ ...whole, capabilities: { clusters: [] } }, /`clusters` is not a capability; use cluster, http, environment/],
    [{ ...whole, capabilities: { http: "https://a.example.com" } }, /capabilities\.http: not a list/],
  ]) {
    assert.throws(() => plugin(definition), message);
  }
});

test("settings are checked, and prepared by `configure`", () => {
  const component = plugin({
    name: "a",
    version: "0.1.0",
    summary: "A.",
    settings: { type: "object", required: ["words"], properties: { words: { type: "array", items: { type: "string" } } } },
    configure({ words }) {
      const errors = words.flatMap((word, index) =>
        word === "" ? [{ pointer: pointer("words", index), message: "empty; remove it" }] : [],
      );
      if (errors.length > 0) throw new SettingsErrors(errors);
      return new Set(words);
    },
    admit: (request, words) => (words.has(request.name) ? allow() : deny(`${request.name} is not allowed`)),
  });
  const pointers = (settings) => {
    try {
      configure(component, settings);
    } catch (error) {
      assert(error instanceof SettingsErrors);
      return error.errors.map((mistake) => mistake.pointer);
    }
  };
  assert.deepEqual(pointers({}), ["/words"]);
  assert.deepEqual(pointers({ words: ["a", "", ""] }), ["/words/1", "/words/2"]);
  assert.equal(configure(component, { words: ["web"] }).admit(create(pod())).allowed, true);
  const { denial } = configure(component, { words: [] }).admit(create(pod()));
  assert.deepEqual(denial, { code: 403, reason: "Forbidden", message: "web is not allowed" });
});

test("a bug in `configure` is reported as a mistake in the settings", () => {
  const bug = () => {
    throw new RangeError("no");
  };
  assert.throws(() => only(allow, { configure: bug }), /settings at "": RangeError: no/);
});

test("each kind of response is returned, and a missing response is an error", () => {
  const answers = [
    [() => allow().warn("old").audit("seen", true), { warnings: ["old"], auditAnnotations: { seen: "true" } }],
    [() => deny("no", { code: 422, reason: "Bad" }), { denial: { code: 422, reason: "Bad", message: "no" } }],
    [() => patch(new Patch()), { patch: [] }],
    [() => patch([{ op: "remove", path: "/a" }]), { patch: [{ op: "remove", path: "/a" }] }],
    [() => replace({ a: 1 }), { replacement: { a: 1 } }],
  ];
  for (const [admit, expected] of answers) {
    const outcome = only(admit).admit(create(pod()));
    for (const [field, value] of Object.entries(expected)) assert.deepEqual(outcome[field], value);
  }
  assert.throws(() => only(() => undefined).admit(create(pod())), /returned no response/);
  assert.throws(() => only((request) => request.none.at).admit(create(pod())), /^Error: TypeError: /);
});

test("a patch escapes keys, and refuses undefined values", () => {
  const changes = new Patch()
    .add(["metadata", "labels", "example.com/a~b"], "x")
    .replace("/a", null)
    .test(["a"], 1)
    .move(["a"], ["b"])
    .copy("/a", "/b");
  assert.deepEqual(changes.operations, [
    { op: "add", path: "/metadata/labels/example.com~1a~0b", value: "x" },
    { op: "replace", path: "/a", value: null },
    { op: "test", path: "/a", value: 1 },
    { op: "move", from: "/a", path: "/b" },
    { op: "copy", from: "/a", path: "/b" },
  ]);
  assert.throws(() => changes.add("/a", undefined), /add of \/a: the value is undefined/);
});

test("`mutate` returns a patch of the differences", () => {
  const before = { ...pod({ a: "1", b: "2" }), spec: { list: [1, { x: 1 }, 3, 4], same: [] } };
  const outcome = only((request) =>
    mutate(request, (object) => {
      delete object.metadata.labels.a;
      object.metadata.labels["c/d"] = "3";
      object.spec.list = [1, { x: 2 }];
      object.spec.more = [1];
    }),
  ).admit(create(before));
  assert.deepEqual(outcome.patch, [
    { op: "remove", path: "/metadata/labels/a" },
    { op: "add", path: "/metadata/labels/c~1d", value: "3" },
    { op: "replace", path: "/spec/list/1/x", value: 2 },
    { op: "remove", path: "/spec/list/3" },
    { op: "remove", path: "/spec/list/2" },
    { op: "add", path: "/spec/more", value: [1] },
  ]);
  const longer = only((request) => mutate(request, (object) => object.spec.list.push(5))).admit(create(before));
  assert.deepEqual(longer.patch, [{ op: "add", path: "/spec/list/-", value: 5 }]);
  assert.deepEqual(only((request) => mutate(request, () => {})).admit(remove(before)).patch, []);
});

test("a request has the operation, the objects and the kind", () => {
  const seen = [];
  const admit = (request) => {
    seen.push([request.operation, request.object?.metadata.name, request.oldObject?.metadata.name, request.kind.kind]);
    return allow();
  };
  const configured = only(admit, { warmUp: pod() });
  for (const request of [create(pod()), update(pod(), pod()), remove(pod()), connect(pod())]) configured.admit(request);
  assert.deepEqual(seen, [
    ["create", "web", undefined, "Pod"],
    ["create", "web", undefined, "Pod"],
    ["update", "web", "web", "Pod"],
    ["delete", undefined, "web", "Pod"],
    ["connect", "web", undefined, "Pod"],
  ]);
});

test("calls of the host are unavailable outside of the sandbox", () => {
  assert.throws(() => get("v1", "Node", { name: "a" }), { name: "ClusterError", kind: "unavailable" });
  assert.throws(() => send("https://a.example.com"), (error) => error instanceof HttpError && error.kind === "unavailable");
});

test("HTTP bodies are encoded and decoded as UTF-8", () => {
  const text = "{\"a\":\"é%✓\"}";
  const request = requestOf("https://a.example.com", { method: "POST", headers: { accept: "text/plain" }, body: text });
  assert.deepEqual(Buffer.from(request.body).toString(), text);
  assert.deepEqual(request.headers, [["accept", "text/plain"]]);
  const response = new HttpResponse({ status: 200, headers: [["Content-Type", "a"]], body: request.body });
  assert.deepEqual(response.json(), { a: "é%✓" });
  assert.equal(response.header("content-type"), "a");
});
