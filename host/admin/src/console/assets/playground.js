// <playground-page>: evaluates while one writes, completes from schemas, and shares what is written as a link.

import { completer } from "./completion.js";
import { CodeEditor } from "./editor.js";

/** @typedef {import("./completion.js").Schema} Schema */

/** How long nothing is written before it is evaluated, in milliseconds. */
const PAUSE = 400;
/** The longest state in a link after it is unpacked, in characters. */
const LONGEST = 1 << 20;
/** The fields that a link holds. */
const SHARED = ["definitions", "settings", "object", "old_object", "operation", "resource", "namespace", "user", "groups"];

class PlaygroundPage extends HTMLElement {
  /** @type {HTMLFormElement} */
  #form = document.createElement("form");
  #outcome = document.createElement("section");
  #status = document.createElement("p");
  /** The run that goes on. @type {AbortController | null} */
  #run = null;
  /** @type {number | undefined} */
  #timer;
  /** Whether a change is evaluated at once. Not until the user has seen what a link brought. */
  #armed = true;
  /** @type {Schema | null} */
  #chain = null;
  /** The schemas of settings, by stage. @type {Record<string, Schema>} */
  #settings = {};

  connectedCallback() {
    const form = this.querySelector("form");
    const outcome = this.querySelector("#outcome");
    if (!form || !(outcome instanceof HTMLElement)) return;
    this.#form = form;
    this.#outcome = outcome;
    this.#status.className = "visually-hidden";
    this.#status.setAttribute("role", "status");
    this.append(this.#status);
    const canRun = form.querySelector("button[type=submit]") !== null;
    form.addEventListener("input", () => canRun && this.#later());
    form.addEventListener("submit", (event) => this.#submitted(event));
    window.addEventListener("hashchange", () => this.#opened());
    this.#complete();
    this.#addSharing();
    this.#opened();
    this.#read();
  }

  /** @param {string} name */
  #editor(name) {
    const editor = this.#form.elements.namedItem(name);
    const element = editor instanceof HTMLElement ? editor.closest("code-editor") : null;
    return element instanceof CodeEditor ? element : null;
  }

  #later() {
    if (!this.#armed) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#evaluate(), PAUSE);
  }

  /** @param {SubmitEvent} event */
  #submitted(event) {
    // The other button saves a file.
    if (event.submitter?.hasAttribute("formaction")) return;
    event.preventDefault();
    this.#armed = true;
    this.#evaluate();
  }

  /** Evaluates what is written now. An older run ends, on the server too. */
  async #evaluate() {
    clearTimeout(this.#timer);
    this.#run?.abort();
    const run = new AbortController();
    this.#run = run;
    this.#outcome.setAttribute("aria-busy", "true");
    const body = new URLSearchParams();
    new FormData(this.#form).forEach((value, name) => body.append(name, String(value)));
    body.append("outcome", "true");
    try {
      const response = await fetch(this.#form.action, { method: "POST", body, signal: run.signal });
      const text = await response.text();
      if (run.signal.aborted) return;
      if (response.status === 401) {
        this.#fail("The session has ended. Copy a link to this, sign in again, and open the link: it keeps what you wrote.");
      } else if (text.trimStart().startsWith("<!DOCTYPE")) {
        // A page in place of the outcome says why the form was refused.
        const page = new DOMParser().parseFromString(text, "text/html");
        this.#fail(page.querySelector(".notice")?.textContent ?? "The driver refused this.");
      } else {
        this.#show(text);
      }
    } catch (error) {
      if (!run.signal.aborted) this.#fail(`The driver cannot be reached: ${error}`);
    } finally {
      if (this.#run === run) this.#outcome.removeAttribute("aria-busy");
    }
  }

  /** @param {string} markup */
  #show(markup) {
    // The driver escapes everything that is not its own.
    this.#outcome.innerHTML = markup;
    this.#read();
  }

  /** @param {string} message */
  #fail(message) {
    const notice = document.createElement("p");
    notice.className = "notice bad";
    notice.textContent = message;
    this.#outcome.replaceChildren(notice);
    this.#status.textContent = message;
  }

  /** Marks the lines of mistakes, and learns the schemas of the plugins. */
  #read() {
    for (const name of ["definitions", "settings", "object", "old_object"]) this.#editor(name)?.readMarks();
    const schemas = this.#outcome.querySelector("[data-schemas]")?.getAttribute("data-schemas");
    if (schemas) this.#settings = JSON.parse(schemas);
    this.#status.textContent = this.#outcome.querySelector("h2, .notice")?.textContent ?? "";
  }

  #complete() {
    const definitions = this.#editor("definitions");
    const settings = this.#editor("settings");
    const address = this.getAttribute("schema");
    this.#form.addEventListener(
      "focusin",
      async () => {
        if (!address || this.#chain) return;
        this.#chain = await (await fetch(address)).json();
        // Completes the text that was typed in the meantime.
        definitions?.complete();
      },
      { once: true },
    );
    if (definitions) {
      definitions.completer = completer(
        () => this.#chain,
        (place, depth) => {
          const isSettings = place.path[depth] === "settings" && place.path[depth - 1] === "plugin";
          const stage = place.levels[depth - 1]?.get("name") ?? "";
          return (isSettings && this.#settings[stage]) || null;
        },
      );
    }
    if (settings) settings.completer = completer(() => ({ properties: this.#settings }));
  }

  #addSharing() {
    const place = this.#form.querySelector(".sharing");
    if (!place) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy a link to this";
    button.addEventListener("click", async () => {
      history.replaceState(null, "", `#${await packed(this.#state())}`);
      try {
        await navigator.clipboard.writeText(location.href);
        button.textContent = "Copied";
      } catch {
        button.textContent = "The link is in the address bar";
      }
    });
    this.#form.addEventListener("input", () => (button.textContent = "Copy a link to this"));
    place.append(button);
  }

  /** @returns {Record<string, string>} */
  #state() {
    const fields = new FormData(this.#form);
    const given = SHARED.map((name) => [name, String(fields.get(name) ?? "")]);
    return Object.fromEntries(given.filter(([, value]) => value !== ""));
  }

  /** Takes the state in the address. It may come from anybody, so it is evaluated only when the user asks for it. */
  async #opened() {
    const text = location.hash.slice(1);
    if (!text || document.getElementById(text)) return;
    const state = await unpacked(text);
    if (!state) {
      this.#fail("The link is incomplete or not from a playground.");
      return;
    }
    this.#run?.abort();
    clearTimeout(this.#timer);
    this.#armed = false;
    for (const name of SHARED) {
      const field = this.#form.elements.namedItem(name);
      const value = state[name] ?? "";
      const editor = this.#editor(name);
      if (editor) editor.value = value;
      else if (field instanceof HTMLInputElement || field instanceof HTMLSelectElement) field.value = value;
      if (value && field instanceof HTMLElement) field.closest("details")?.setAttribute("open", "");
    }
    const notice = document.createElement("p");
    notice.className = "notice";
    notice.textContent = "This comes from a link. Look at what the chain calls and grants before you evaluate it.";
    this.#outcome.replaceChildren(notice);
  }
}

/**
 * A state as a short text for an address.
 * @param {Record<string, string>} state
 */
async function packed(state) {
  const stream = new Blob([JSON.stringify(state)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/**
 * The state in such a text; `null` if it is none.
 * @param {string} text
 * @returns {Promise<Record<string, string> | null>}
 */
async function unpacked(text) {
  try {
    const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (sign) => sign.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    let json = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      json += value;
      if (json.length > LONGEST) return null;
    }
    const state = JSON.parse(json);
    const isState = typeof state === "object" && state !== null;
    return isState && Object.values(state).every((value) => typeof value === "string") ? state : null;
  } catch {
    return null;
  }
}

customElements.define("playground-page", PlaygroundPage);
