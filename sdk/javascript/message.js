// HTTP requests and responses in the form of the contract.

export function requestOf(url, { method = "GET", headers = {}, body = "" } = {}) {
  const bytes = typeof body === "string" ? utf8(body) : body;
  return { method, url, headers: Object.entries(headers), body: bytes };
}

/** The response to a request. */
export class HttpResponse {
  constructor({ status, headers, body }) {
    this.status = status;
    this.headers = headers;
    this.body = body;
  }

  /** Returns the first header of this name. The case of the name does not matter. */
  header(name) {
    return this.headers.find(([key]) => key.toLowerCase() === name.toLowerCase())?.[1];
  }

  /** Returns the body as text. */
  text() {
    // Not every engine has a TextDecoder.
    let escaped = "";
    for (const byte of this.body) escaped += `%${byte.toString(16).padStart(2, "0")}`;
    return decodeURIComponent(escaped);
  }

  /** Returns the body, parsed as JSON. */
  json() {
    return JSON.parse(this.text());
  }
}

function utf8(text) {
  const escaped = encodeURIComponent(text);
  const bytes = [];
  for (let index = 0; index < escaped.length; index += 1) {
    if (escaped[index] === "%") {
      bytes.push(Number.parseInt(escaped.slice(index + 1, index + 3), 16));
      index += 2;
    } else {
      bytes.push(escaped.charCodeAt(index));
    }
  }
  return new Uint8Array(bytes);
}
