// Defines <playground-page>, which evaluates the request while the user types, completes by schemas, and shares the
// content as a link.

import { completer } from "./completion.js";
import { CodeEditor } from "./editor.js";

/** @typedef {import("./completion.js").Schema} Schema */

/** The time in milliseconds after the last input at which the request is evaluated. */
const PAUSE = 400;
/** The maximum number of characters in the content of a link, after decompression. */
const LONGEST = 1 << 20;
/** The fields of the form that a link contains. */
const SHARED = ["definitions", "settings", "object", "old_object", "operation", "resource", "namespace", "user", "groups"];

class PlaygroundPage extends HTMLElement {
  /** @type {HTMLFormElement} */
  #form = document.createElement("form");
  #outcome = document.createElement("section");
  #status = document.createElement("p");
  /** The evaluation that is running. @type {AbortController | null} */
  #run = null;
  /** @type {number | undefined} */
  #timer;
  /** Whether input is evaluated automatically. After a link is opened, it is not until the user submits the form. */
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
    // This button downloads a test case, so the browser submits the form.
    if (event.submitter?.hasAttribute("formaction")) return;
    event.preventDefault();
    this.#armed = true;
    this.#evaluate();
  }

  /** Evaluates the content of the form. An evaluation that is running is aborted, on the server as well. */
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
        // If the form was refused, the reply is a whole page, with the reason in a notice.
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
    // This is safe, because the driver escapes all text in the markup that it did not write itself.
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

  /** Marks the lines with mistakes that the outcome names, and takes the schemas of the plugins' settings from it. */
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
        // The user may have typed something before the schema arrived.
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

  /** Fills the form from the link in the address. Anybody may have made it, so only the user starts an evaluation. */
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
 * Returns the content of the form as a short text that a link can contain.
 * @param {Record<string, string>} state
 */
async function packed(state) {
  const stream = new Blob([JSON.stringify(state)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/**
 * Returns the content of the form that a link contains; `null` if the text is not from a link.
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
