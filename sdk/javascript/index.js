// Plugins for Admittance: see `plugin` below, and index.d.ts for the types.

import { requestFor } from "./sample.js";
import { check, child, strict } from "./schema.js";

/** Escapes the keys of a path and joins them: `pointer("metadata", "labels", "a/b")`. */
export function pointer(...keys) {
  return keys.reduce(child, "");
}

/** Returns the path of an operation as a JSON Pointer. The path may also be given as a list of keys. */
const pathOf = (path) => (Array.isArray(path) ? pointer(...path) : path);

/** Mistakes in the settings. `errors` is a list of `{ pointer, message }`. */
export class SettingsErrors extends Error {
  constructor(errors) {
    super(errors.map(({ pointer, message }) => `settings at "${pointer}": ${message}`).join("; "));
    this.name = "SettingsErrors";
    this.errors = errors;
  }
}

/** A JSON Patch. Paths are JSON Pointers, or lists of keys. Keys are escaped. */
export class Patch {
  operations = [];

  add(path, value) {
    return this.#push({ op: "add", path: pathOf(path), value });
  }

  replace(path, value) {
    return this.#push({ op: "replace", path: pathOf(path), value });
  }

  test(path, value) {
    return this.#push({ op: "test", path: pathOf(path), value });
  }

  remove(path) {
    return this.#push({ op: "remove", path: pathOf(path) });
  }

  move(from, path) {
    return this.#push({ op: "move", from: pathOf(from), path: pathOf(path) });
  }

  copy(from, path) {
    return this.#push({ op: "copy", from: pathOf(from), path: pathOf(path) });
  }

  #push(operation) {
    if (operation.value === undefined && ["add", "replace", "test"].includes(operation.op)) {
      throw new TypeError(`${operation.op} of ${operation.path}: the value is undefined, which JSON cannot express`);
    }
    this.operations.push(operation);
    return this;
  }
}

/** A verdict with warnings and audit annotations. `allow`, `deny`, `patch`, `replace` and `mutate` create one. */
class Response {
  warnings = [];
  auditAnnotations = [];

  constructor(verdict) {
    this.verdict = verdict;
  }

  /** Adds a warning for the client, who also gets it if the request is allowed. */
  warn(message) {
    this.warnings.push(String(message));
    return this;
  }

  /** Adds an audit annotation. */
  audit(key, value) {
    this.auditAnnotations.push([key, String(value)]);
    return this;
  }
}

/** Allows the request unchanged. */
export function allow() {
  return new Response({ tag: "allow" });
}

/** Denies the request. A good message says where in the object, what is wrong, and how to fix it. */
export function deny(message, { code = 403, reason = "Forbidden" } = {}) {
  return new Response({ tag: "deny", val: { code, reason, message: String(message) } });
}

/** Allows the request with these changes: a `Patch`, or a list of operations. An empty patch changes nothing. */
export function patch(changes) {
  const operations = changes instanceof Patch ? changes.operations : changes;
  return operations.length === 0 ? allow() : new Response({ tag: "patch", val: JSON.stringify(operations) });
}

/** Allows the request with this complete object instead of the object of the request. */
export function replace(object) {
  return new Response({ tag: "replace", val: JSON.stringify(object) });
}

/** Allows the request with the object as `change` leaves it. The response is a patch of the differences. */
export function mutate(request, change) {
  if (request.object === undefined) return allow();
  const object = JSON.parse(request.objectText);
  change(object);
  const changes = new Patch();
  difference(request.object, JSON.parse(JSON.stringify(object)), [], changes);
  return patch(changes);
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function difference(before, after, path, changes) {
  if (isObject(before) && isObject(after)) {
    for (const key of Object.keys(before)) {
      if (!Object.hasOwn(after, key)) changes.remove([...path, key]);
    }
    for (const [key, value] of Object.entries(after)) {
      if (Object.hasOwn(before, key)) difference(before[key], value, [...path, key], changes);
      else changes.add([...path, key], value);
    }
  } else if (Array.isArray(before) && Array.isArray(after)) {
    const common = Math.min(before.length, after.length);
    for (let index = 0; index < common; index += 1) difference(before[index], after[index], [...path, index], changes);
    for (let index = before.length - 1; index >= common; index -= 1) changes.remove([...path, index]);
    for (let index = common; index < after.length; index += 1) changes.add([...path, "-"], after[index]);
  } else if (before !== after) {
    changes.replace(path, after);
  }
}

/** One admission request. The objects are parsed when they are first read. */
class Request {
  #contract;
  #parsed = {};

  constructor(contract) {
    this.#contract = contract;
    this.uid = contract.uid;
    this.operation = contract.operation;
    this.kind = contract.kind;
    this.resource = contract.resource;
    this.subresource = contract.subresource ?? undefined;
    this.name = contract.name;
    this.namespace = contract.namespace ?? undefined;
    this.user = contract.user;
    this.dryRun = contract.dryRun;
  }

  /** The object, as changed by the previous stages; undefined for a deletion. */
  get object() {
    return this.#parse("object");
  }

  /** The object as it is stored now. */
  get oldObject() {
    return this.#parse("oldObject");
  }

  /** The options of the operation. */
  get options() {
    return this.#parse("options");
  }

  /** The JSON text of the object. */
  get objectText() {
    return this.#contract.object ?? undefined;
  }

  #parse(field) {
    const text = this.#contract[field] ?? undefined;
    if (text !== undefined && !(field in this.#parsed)) this.#parsed[field] = JSON.parse(text);
    return this.#parsed[field];
  }
}

/** Converts resources such as `v1/pods` and `apps/v1/deployments` to the form of the contract. */
function resourceRule(text) {
  const parts = text.split("/");
  if (parts.length < 2 || parts.length > 3) {
    throw new TypeError(`resources: \`${text}\` is not a resource; write \`v1/pods\` or \`apps/v1/deployments\``);
  }
  const [resource, version, group = ""] = parts.reverse();
  return { apiGroups: [group], apiVersions: [version], resources: [resource] };
}

const CAPABILITIES = ["cluster", "http", "environment"];

/** Converts capabilities such as `{ cluster: ["v1/Node"] }` to the form of the contract. */
function capabilitiesOf(capabilities) {
  return Object.entries(capabilities).flatMap(([tag, values]) => {
    if (!CAPABILITIES.includes(tag)) {
      throw new TypeError(`capabilities: \`${tag}\` is not a capability; use ${CAPABILITIES.join(", ")}`);
    }
    if (!Array.isArray(values)) throw new TypeError(`capabilities.${tag}: not a list; write a list of texts`);
    return values.map((val) => ({ tag, val }));
  });
}

/** Advice for errors about globals of browsers and Node.js that the sandbox does not have. */
const ALTERNATIVES = {
  fetch: 'use `send` of "admittance/http", which returns the response',
  setInterval: "a plugin answers at once and has no timers",
  setTimeout: "a plugin answers at once and has no timers",
  process: 'read variables with `get` of "admittance/environment"',
  TextDecoder: "use `text()` of a response, or decodeURIComponent",
  TextEncoder: "give texts to `send` as they are, or use encodeURIComponent",
};

/** Returns an error in the form of the contract, with the line of the plugin that threw it, and advice. */
function textOf(error) {
  if (!(error instanceof Error)) return String(error);
  const frames = String(error.stack).matchAll(/\(\/([^():]+):(\d+):\d+\)/g);
  const isOwn = ([, file]) => !/(^|\/)(vendor|node_modules)\/admittance\//.test(file);
  const [, file, line] = [...frames].find(isOwn) ?? [];
  const place = file === undefined ? "" : ` (${file}:${line})`;
  const missing = /^'?(\w+)'? is not defined/.exec(error.message)?.[1];
  const advice = Object.hasOwn(ALTERNATIVES, missing) ? `; ${ALTERNATIVES[missing]}` : "";
  return `${error.name}: ${error.message}${advice}${place}`;
}

const FIELDS = new Set(
  "name version summary mutates resources capabilities settings configure admit warmUp".split(" "),
);

/**
 * The exports of a plugin:
 *
 *     export const { describe, configure, admit } = plugin({ name, version, summary, settings, admit });
 */
export function plugin(definition) {
  for (const field of Object.keys(definition)) {
    if (!FIELDS.has(field)) throw new TypeError(`plugin: \`${field}\` is not a field; use ${[...FIELDS].join(", ")}`);
  }
  for (const field of ["name", "version", "summary", "admit"]) {
    if (!definition[field]) throw new TypeError(`plugin: \`${field}\` is missing`);
  }
  if (definition.admit.constructor.name === "AsyncFunction") {
    throw new TypeError("plugin: `admit` is async; a plugin answers at once: remove `async`, look-ups and requests wait");
  }
  const schema = strict(definition.settings ?? { type: "object", properties: {} });
  const description = {
    name: definition.name,
    version: definition.version,
    summary: definition.summary,
    mutates: definition.mutates ?? false,
    resources: (definition.resources ?? []).map(resourceRule),
    settingsSchema: JSON.stringify(schema),
    capabilities: capabilitiesOf(definition.capabilities ?? {}),
  };
  const respond = (contract, configured) => {
    const response = definition.admit(new Request(contract), configured);
    if (response instanceof Response) return response;
    if (response instanceof Promise) {
      throw new TypeError("`admit` returned a promise; a plugin answers at once: return a response without `async`");
    }
    throw new TypeError("`admit` returned no response; return allow(), deny(...), patch(...) or mutate(...)");
  };
  let configured;
  /** Admits the sample. Every call starts with the memory as it is afterwards, with the caches that are then filled. */
  const warmUp = (object) => {
    try {
      respond(requestFor("create", object), configured);
    } catch {
      // Errors are ignored: lookups, for example, are unavailable during `configure`.
    }
  };
  return {
    describe: () => description,
    configure(text) {
      const settings = JSON.parse(text);
      const errors = check(schema, settings);
      if (errors.length > 0) throw errors;
      try {
        configured = definition.configure ? definition.configure(settings) : settings;
      } catch (error) {
        // A bug in `configure` is reported to operators as a mistake in the settings as a whole.
        throw error instanceof SettingsErrors ? error.errors : [{ pointer: "", message: textOf(error) }];
      }
      if (definition.warmUp) warmUp(definition.warmUp);
    },
    admit(contract) {
      try {
        return respond(contract, configured);
      } catch (error) {
        throw textOf(error);
      }
    },
  };
}
