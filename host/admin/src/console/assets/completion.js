// Finds what can be written at the caret in a YAML text, by a JSON Schema. Nothing is offered in flow style (`{}`,
// `[]`), which people rarely write by hand.

/**
 * A JSON Schema, with the keywords that completion uses.
 * @typedef {{
 *   type?: string | string[], description?: string, default?: unknown, const?: unknown, enum?: unknown[],
 *   examples?: unknown[],
 *   properties?: Record<string, Schema>, additionalProperties?: Schema | boolean, items?: Schema | boolean,
 *   $ref?: string, allOf?: Schema[], anyOf?: Schema[], oneOf?: Schema[],
 * }} Schema
 */

/**
 * The fields of a mapping that are above the caret, with their values.
 * @typedef {Map<string, string>} Level
 */

/**
 * The place of the caret in a text: the keys that lead to it, with `[]` for an entry of a list, and for each key the
 * fields of its mapping.
 * @typedef {{ path: string[], levels: Level[], key: string | null, from: number, indentation: number }} Place
 */

/** The maximum depth to which references and alternatives of a schema are followed. */
const DEEPEST = 12;

const ENTRY = "[]";

/**
 * Returns the place of the caret; `null` if nothing can be completed there.
 * @param {string} text
 * @param {number} caret
 * @returns {Place | null}
 */
export function placeOf(text, caret) {
  const lines = text.slice(0, caret).split("\n");
  const line = lines.pop() ?? "";
  const match = line.match(/^( *)((?:- +)*)([\w./$-]*)(?::( +)(\S*))?$/);
  if (!match) return null;
  const [, spaces = "", dashes = "", key = "", gap, value = ""] = match;
  const isValue = gap !== undefined;
  const walk = new Walk(spaces.length + dashes.length);
  walk.enter(spaces.length, dashes);
  for (const above of lines.reverse()) {
    if (/^---/.test(above)) break;
    walk.up(above);
  }
  return {
    path: walk.path,
    levels: walk.levels,
    key: isValue ? key : null,
    from: caret - (isValue ? value : key).length,
    indentation: spaces.length + dashes.length,
  };
}

/** Goes up from the caret's line to the beginning of the text, and collects the keys that lead to the caret. */
class Walk {
  /** @type {string[]} */
  path = [];
  /** @type {Level[]} For each key of the path, the fields of its mapping; the last entry is for the caret's line. */
  levels = [new Map()];
  /** The column of the keys of the current mapping, or of the dashes of the current list. */
  #column;
  #inList = false;

  /** @param {number} column */
  constructor(column) {
    this.#column = column;
  }

  /**
   * Adds the entries of lists that begin in a line to the path.
   * @param {number} indentation
   * @param {string} dashes
   */
  enter(indentation, dashes) {
    const offsets = [...dashes.matchAll(/-/g)].map((dash) => indentation + dash.index);
    for (const offset of offsets.reverse()) {
      this.path.unshift(ENTRY);
      this.levels.unshift(new Map());
      this.#column = offset;
      this.#inList = true;
    }
  }

  /** @param {string} line */
  up(line) {
    const match = line.match(/^( *)((?:- +)*)(?:"([^"]*)"|'([^']*)'|([^\s#'"][^:#]*?)):(?: +(.*))?$/);
    if (!match) return;
    const [, spaces = "", dashes = "", double, single, plain, value = ""] = match;
    const key = double ?? single ?? plain ?? "";
    const column = spaces.length + dashes.length;
    if (this.#inList) {
      const isSibling = dashes !== "" && spaces.length === this.#column;
      if (column > this.#column || isSibling) return;
    } else if (column === this.#column) {
      this.levels[0]?.set(key, value.trim());
      this.enter(spaces.length, dashes);
      return;
    } else if (column > this.#column) {
      return;
    }
    this.path.unshift(key);
    this.levels.unshift(new Map([[key, value.trim()]]));
    this.#column = column;
    this.#inList = false;
    this.enter(spaces.length, dashes);
  }
}

/**
 * Returns all schemas that apply to a value of this schema: the schema, its alternatives, and those that it refers to.
 * @param {Schema | boolean | undefined} schema
 * @param {Schema} root
 * @param {number} [depth]
 * @returns {Schema[]}
 */
function alternatives(schema, root, depth = 0) {
  if (typeof schema !== "object" || depth > DEEPEST) return [];
  const parts = [schema.allOf, schema.anyOf, schema.oneOf].flatMap((list) => list ?? []);
  if (schema.$ref) parts.push(referenced(schema.$ref, root));
  return [schema, ...parts.flatMap((part) => alternatives(part, root, depth + 1))];
}

/**
 * @param {string} reference
 * @param {Schema} root
 * @returns {Schema}
 */
function referenced(reference, root) {
  /** @type {unknown} */
  let found = root;
  for (const part of reference.replace(/^#\/?/, "").split("/")) {
    const name = decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
    found = typeof found === "object" && found !== null ? Reflect.get(found, name) : undefined;
  }
  return typeof found === "object" && found !== null ? found : {};
}

/**
 * Returns the schemas of the value at the end of a path. If `replaced` returns a schema for a depth of the path, it is
 * used instead of the schema there.
 * @param {Schema} root
 * @param {string[]} path
 * @param {(depth: number) => Schema | null} replaced
 * @returns {{ schemas: Schema[], root: Schema }}
 */
function schemasAt(root, path, replaced) {
  let schemas = alternatives(root, root);
  path.forEach((key, index) => {
    const next = schemas.flatMap((schema) => {
      if (key === ENTRY) return [schema.items];
      const own = schema.properties?.[key];
      return [own ?? schema.additionalProperties];
    });
    const other = replaced(index);
    if (other) root = other;
    schemas = other ? alternatives(other, other) : next.flatMap((schema) => alternatives(schema, root));
  });
  return { schemas, root };
}

/**
 * Returns a function that completes a text by a schema.
 * @param {() => Schema | null} schema Returns the schema; `null` until it is known.
 * @param {(place: Place, depth: number) => Schema | null} replaced Returns a schema to use at this depth of the path.
 * @returns {import("./editor.js").Completer}
 */
export function completer(schema, replaced = () => null) {
  return (text, caret) => {
    const known = schema();
    const place = placeOf(text, caret);
    if (!known || !place) return null;
    const path = place.key === null ? place.path : [...place.path, place.key];
    const { schemas, root } = schemasAt(known, path, (depth) => replaced(place, depth));
    const choices = place.key === null ? keys(schemas, root, place) : values(schemas);
    return { from: place.from, choices };
  };
}

/**
 * Returns the fields that the mapping at the caret may have, but does not have yet.
 * @param {Schema[]} schemas
 * @param {Schema} root
 * @param {Place} place
 * @returns {import("./editor.js").Choice[]}
 */
function keys(schemas, root, place) {
  const there = place.levels.at(-1);
  /** @type {Map<string, import("./editor.js").Choice>} */
  const choices = new Map();
  for (const schema of schemas) {
    for (const [name, property] of Object.entries(schema.properties ?? {})) {
      if (there?.has(name) || choices.has(name)) continue;
      const all = alternatives(property, root);
      const detail = all.find((one) => one.description)?.description ?? "";
      const below = `\n${" ".repeat(place.indentation + 2)}`;
      const insert = is(all, "array") ? `${name}:${below}- ` : is(all, "object") ? `${name}:${below}` : `${name}: `;
      choices.set(name, { label: name, detail, insert });
    }
  }
  return [...choices.values()];
}

/**
 * @param {Schema[]} schemas
 * @param {string} type
 */
function is(schemas, type) {
  return schemas.some((schema) => schema.type === type);
}

/**
 * Returns the possible words, the default and the examples of a value.
 * @param {Schema[]} schemas
 * @returns {import("./editor.js").Choice[]}
 */
function values(schemas) {
  /** @type {Map<string, string>} */
  const words = new Map();
  const add = (/** @type {unknown} */ value, /** @type {string} */ detail) => {
    if (["string", "number", "boolean"].includes(typeof value)) words.set(String(value), words.get(String(value)) ?? detail);
  };
  for (const schema of schemas) {
    if (schema.const !== undefined) add(schema.const, "");
    schema.enum?.forEach((value) => add(value, value === schema.default ? "the default" : ""));
    if (schema.type === "boolean") [true, false].forEach((value) => add(value, value === schema.default ? "the default" : ""));
    if (schema.default !== undefined) add(schema.default, "the default");
    schema.examples?.forEach((value) => add(value, "an example"));
  }
  return [...words].map(([label, detail]) => ({ label, detail, insert: label }));
}
