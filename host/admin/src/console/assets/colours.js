// Colours the tokens of texts in YAML or JSON, and of HTTP requests with such a body.

/** The length above which a text is not coloured, because that would delay typing. */
const LONGEST_TEXT = 1 << 16;
const LONGEST_LINE = 500;

// The group `key` matches a key at the beginning of a line, after the dashes of a list, or in a flow mapping.
const TOKEN = new RegExp(
  [
    /(?<comment>(?<![^\s])#.*)/,
    /(?<key>(?<=^[\s-]*|[{,]\s*)(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'{}[\],:#&*!|>-][^:{}[\],#]*)(?=:(?:\s|$)))/,
    /(?<string>"(?:[^"\\]|\\.)*"|'[^']*')/,
    /(?<number>(?<![\w.-])-?\d+(?:\.\d+)?(?![\w.-]))/,
    /(?<word>(?<![\w.-])(?:true|false|null)(?![\w.-]))/,
    /(?<mark>^---$|^[A-Z]+(?= \/))/,
  ]
    .map((part) => part.source)
    .join("|"),
  "g",
);

/**
 * Returns a text in which each token is an element, whose class is the kind of the token.
 * @param {string} text
 * @returns {(string | HTMLElement)[]}
 */
export function coloured(text) {
  if (text.length > LONGEST_TEXT) return [text];
  return text.split("\n").flatMap((line) => [...(line.length > LONGEST_LINE ? [line] : tokens(line)), "\n"]);
}

/**
 * @param {string} line
 * @returns {(string | HTMLElement)[]}
 */
function tokens(line) {
  const parts = [];
  let end = 0;
  for (const match of line.matchAll(TOKEN)) {
    const [kind] = Object.entries(match.groups ?? {}).find(([, found]) => found !== undefined) ?? [""];
    const token = document.createElement("span");
    token.className = kind;
    token.textContent = match[0];
    parts.push(line.slice(end, match.index), token);
    end = match.index + match[0].length;
  }
  return [...parts, line.slice(end)];
}
