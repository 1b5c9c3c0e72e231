// What can be written at a place of a YAML text, by a JSON Schema. Only block style is understood, which is what people
// write by hand; elsewhere nothing is offered.

/**
 * The part of JSON Schema that is used here.
 * @typedef {{
 *   type?: string | string[], description?: string, default?: unknown, const?: unknown, enum?: unknown[],
 *   examples?: unknown[],
 *   properties?: Record<string, Schema>, additionalProperties?: Schema | boolean, items?: Schema | boolean,
 *   $ref?: string, allOf?: Schema[], anyOf?: Schema[], oneOf?: Schema[],
 * }} Schema
 */

/**
 * The fields of a mapping with their values, as far as they are above the caret.
 * @typedef {Map<string, string>} Level
 */

/**
 * A place of a text: the keys that lead there, `[]` for an entry of a list, and the fields beside each of them.
 * @typedef {{ path: string[], levels: Level[], key: string | null, from: number, indentation: number }} Place
 */

/** The deepest nesting of references that is followed. */
const DEEPEST = 12;

const ENTRY = "[]";

/**
 * The place of the caret; `null` where nothing can be completed.
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

/** Goes up from a line to the beginning of the text, and collects what leads to the line. */
class Walk {
  /** @type {string[]} */
  path = [];
  /** @type {Level[]} The fields beside each key of the path, and those beside the line at the end. */
  levels = [new Map()];
  /** The column of the keys beside, or of the dashes of a list. */
  #column;
  #inList = false;

  /** @param {number} column */
  constructor(column) {
    this.#column = column;
  }

  /**
   * Leaves the entries of lists that begin in a line.
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
 * All schemas that a value of this one is held to.
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
 * The schemas of the value at the end of a path. `replaced` may give another schema for a part of the path.
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
 * A completer by a schema.
 * @param {() => Schema | null} schema The schema, once it is known.
 * @param {(place: Place, depth: number) => Schema | null} replaced Another schema for a part of a place's path.
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
 * The fields that are not there yet.
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
 * The words and defaults of a value.
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
