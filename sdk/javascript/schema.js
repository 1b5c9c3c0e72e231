// Settings are checked against a JSON Schema. Only the keywords that settings need are supported. A schema with other
// keywords is refused, because these would not be checked.

const KEYWORDS = {
  any: ["type", "title", "description", "default", "enum"],
  object: ["properties", "required", "additionalProperties"],
  array: ["items", "minItems", "maxItems"],
  string: ["minLength", "maxLength", "pattern"],
  number: ["minimum", "maximum"],
  integer: ["minimum", "maximum"],
  boolean: [],
};

const ARTICLES = { object: "an object", array: "a list", integer: "an integer", null: "null" };
const withArticle = (type) => ARTICLES[type] ?? `a ${type}`;

/** Returns the pointer to a member of the value at `pointer`. */
export const child = (pointer, key) => `${pointer}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;

function typeOf(value) {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  return typeof value;
}

/** Returns the schema without unknown properties in objects. Throws if the schema is invalid. */
export function strict(schema, place = "settings") {
  const { type } = schema;
  if (!(type in KEYWORDS) || type === "any") {
    const types = Object.keys(KEYWORDS).slice(1).join(", ");
    throw new TypeError(`${place}: \`type\` is ${JSON.stringify(type)}; write one of ${types}`);
  }
  for (const keyword of Object.keys(schema)) {
    if (![...KEYWORDS.any, ...KEYWORDS[type]].includes(keyword)) {
      throw new TypeError(`${place}: \`${keyword}\` is not checked for type ${type}; remove it, and check it in \`configure\``);
    }
  }
  if (type === "array") return schema.items ? { ...schema, items: strict(schema.items, `${place}.items`) } : schema;
  if (type !== "object") return schema;
  const closed = { ...schema };
  if (schema.properties) {
    const properties = Object.entries(schema.properties);
    closed.properties = Object.fromEntries(properties.map(([key, value]) => [key, strict(value, `${place}.${key}`)]));
    for (const key of schema.required ?? []) {
      if (!Object.hasOwn(schema.properties, key)) throw new TypeError(`${place}: \`${key}\` is required, and no property`);
    }
    closed.additionalProperties ??= false;
  }
  if (isComposite(schema.additionalProperties)) {
    closed.additionalProperties = strict(schema.additionalProperties, `${place}.additionalProperties`);
  }
  return closed;
}

/** Returns whether a value is an object or a list. A schema may also be `true` or `false`. */
const isComposite = (value) => typeof value === "object" && value !== null;

/** Returns all mistakes in a value, as `{ pointer, message }`. Sets absent properties to their defaults. */
export function check(schema, value) {
  const errors = [];
  visit(schema, value, "", errors);
  return errors;
}

function visit(schema, value, pointer, errors) {
  const mistake = (message) => errors.push({ pointer, message });
  const found = typeOf(value);
  const isRight = schema.type === "integer" ? Number.isInteger(value) : found === schema.type;
  if (!isRight) {
    const what = schema.type === "integer" && found === "number" ? String(value) : withArticle(found);
    mistake(`expected ${withArticle(schema.type)}, found ${what}`);
    return;
  }
  if (schema.enum && !schema.enum.some((one) => isEqual(one, value))) {
    mistake(`${JSON.stringify(value)} is not allowed; use one of: ${schema.enum.map((one) => JSON.stringify(one)).join(", ")}`);
  }
  if (found === "object") object(schema, value, pointer, errors);
  else if (found === "array") array(schema, value, pointer, errors);
  else if (found === "string") string(schema, value, mistake);
  else if (found === "number") {
    if (value < schema.minimum) mistake(`${value} is too small; the minimum is ${schema.minimum}`);
    if (value > schema.maximum) mistake(`${value} is too large; the maximum is ${schema.maximum}`);
  }
}

/** Returns whether two JSON values are equal. The order of properties does not matter. */
function isEqual(one, other) {
  if (typeOf(one) !== typeOf(other) || !isComposite(one)) return one === other;
  const keys = Object.keys(one);
  return (
    keys.length === Object.keys(other).length &&
    keys.every((key) => Object.hasOwn(other, key) && isEqual(one[key], other[key]))
  );
}

function object(schema, value, pointer, errors) {
  const properties = schema.properties ?? {};
  for (const [key, property] of Object.entries(value)) {
    if (Object.hasOwn(properties, key)) visit(properties[key], property, child(pointer, key), errors);
    else if (isComposite(schema.additionalProperties)) visit(schema.additionalProperties, property, child(pointer, key), errors);
    else if (schema.additionalProperties === false) {
      const known = Object.keys(properties);
      const fix = known.length > 0 ? `use one of: ${known.join(", ")}` : "remove it";
      errors.push({ pointer: child(pointer, key), message: `unknown setting; ${fix}` });
    }
  }
  for (const key of schema.required ?? []) {
    if (!Object.hasOwn(value, key)) errors.push({ pointer: child(pointer, key), message: "missing; set it" });
  }
  for (const [key, property] of Object.entries(properties)) {
    // The default is copied, because the plugin may change the value.
    if (!Object.hasOwn(value, key) && "default" in property) value[key] = JSON.parse(JSON.stringify(property.default));
  }
}

function array(schema, value, pointer, errors) {
  if (value.length < schema.minItems) errors.push({ pointer, message: `too few elements; the minimum is ${schema.minItems}` });
  if (value.length > schema.maxItems) errors.push({ pointer, message: `too many elements; the maximum is ${schema.maxItems}` });
  if (schema.items) value.forEach((element, index) => visit(schema.items, element, child(pointer, index), errors));
}

function string(schema, value, mistake) {
  const length = [...value].length;
  if (length < schema.minLength) mistake(length === 0 ? "empty; write a text" : `too short; the minimum is ${schema.minLength} characters`);
  if (length > schema.maxLength) mistake(`too long; the maximum is ${schema.maxLength} characters`);
  if (schema.pattern !== undefined && !new RegExp(schema.pattern, "u").test(value)) {
    mistake(`${JSON.stringify(value)} does not match the pattern ${schema.pattern}`);
  }
}
