// Defines <code-editor>, which adds colours, line numbers, marked lines, indentation and completion to its textarea.
// Without scripts, the textarea works alone.

import { coloured } from "./colours.js";

/**
 * A text that can complete the text before the caret.
 * @typedef {{ label: string, detail: string, insert: string }} Choice
 */

/**
 * Returns the choices for completing a text at the caret, and the offset at which the completed text begins.
 * @typedef {(text: string, caret: number) => { from: number, choices: Choice[] } | null} Completer
 */

const INDENTATION = "  ";
/** The maximum number of choices that the list shows. */
const MOST = 40;

export class CodeEditor extends HTMLElement {
  /** @type {Completer | null} */
  completer = null;

  /** @type {HTMLTextAreaElement} */
  #area = document.createElement("textarea");
  #numbers = document.createElement("div");
  #colours = document.createElement("pre");
  #list = document.createElement("ul");
  /** @type {Choice[]} */
  #choices = [];
  /** The index of the choice that is active in the list. */
  #active = 0;
  /** Whether the user requested the list or moved in it. If so, Enter writes the active choice. */
  #chosen = false;
  /** The offset at which the text begins that a choice completes. */
  #from = 0;
  /** Whether the next Tab moves the focus out of the editor, because Escape was pressed. */
  #leaves = false;
  /** @type {Map<number, string>} */
  #marks = new Map();

  connectedCallback() {
    const area = this.querySelector("textarea");
    if (!area || this.#numbers.isConnected) return;
    this.#area = area;
    this.#numbers.className = "numbers";
    this.#colours.className = "colours";
    for (const copy of [this.#numbers, this.#colours]) copy.setAttribute("aria-hidden", "true");
    this.#list.className = "choices";
    this.#list.id = `${area.name}-choices`;
    this.#list.setAttribute("role", "listbox");
    this.#list.setAttribute("aria-label", "Completions");
    this.#list.hidden = true;
    this.prepend(this.#numbers, this.#colours);
    this.append(this.#list);
    area.setAttribute("aria-autocomplete", "list");
    area.setAttribute("aria-controls", this.#list.id);
    area.addEventListener("input", (event) => this.#changed(event));
    area.addEventListener("scroll", () => this.#scrolled());
    area.addEventListener("keydown", (event) => this.#pressed(event));
    area.addEventListener("blur", () => this.#close());
    area.addEventListener("click", () => this.#close());
    this.#list.addEventListener("mousedown", (event) => this.#clicked(event));
    this.readMarks();
  }

  get value() {
    return this.#area.value;
  }

  set value(text) {
    this.#area.value = text;
    this.#draw();
  }

  /** Shows the choices for completing the text before the caret, if the editor has the focus. */
  complete() {
    if (document.activeElement === this.#area) this.#complete(false);
  }

  /** Marks the lines to which the page's links for mistakes in this editor lead, and removes all other marks. */
  readMarks() {
    const lines = this.#area.value.split("\n").length;
    const links = document.querySelectorAll(`[data-editor="${this.#area.id}"]`);
    const marks = [...links].map((link) => {
      // A mistake about something missing at the end may name a line below the text.
      const line = Math.min(Number(link.getAttribute("data-line")), lines);
      return /** @type {const} */ ([line, link.getAttribute("title") ?? ""]);
    });
    this.#marks = new Map(marks);
    this.#draw();
  }

  /**
   * Moves the caret to the beginning of a line.
   * @param {number} line
   */
  goTo(line) {
    const before = this.#area.value.split("\n").slice(0, line - 1);
    const start = before.reduce((sum, text) => sum + text.length + 1, 0);
    this.#area.focus();
    this.#area.setSelectionRange(start, start);
    this.#area.scrollTop = Math.max(0, line - 4) * this.#lineHeight();
  }

  #lineHeight() {
    return parseFloat(getComputedStyle(this.#area).lineHeight) || 18;
  }

  #draw() {
    const count = this.#area.value.split("\n").length;
    const numbers = [];
    for (let line = 1; line <= count; line++) {
      const number = document.createElement("div");
      number.textContent = String(line);
      const message = this.#marks.get(line);
      if (message !== undefined) {
        number.className = "marked";
        number.title = message;
      }
      numbers.push(number);
    }
    this.#numbers.replaceChildren(...numbers);
    this.#colours.replaceChildren(...coloured(this.#area.value));
    this.#scrolled();
  }

  #scrolled() {
    this.#numbers.scrollTop = this.#area.scrollTop;
    this.#colours.scrollTop = this.#area.scrollTop;
    this.#colours.scrollLeft = this.#area.scrollLeft;
    if (!this.#list.hidden) this.#place();
  }

  /** @param {Event} event */
  #changed(event) {
    this.#draw();
    const typed = event instanceof InputEvent && event.inputType === "insertText";
    const goesOn = typed || !this.#list.hidden;
    if (goesOn) this.#complete(false);
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    const leaves = this.#leaves;
    if (event.key !== "Shift") this.#leaves = false;
    if (event.ctrlKey && event.key === " ") {
      event.preventDefault();
      this.#complete(true);
    } else if (!this.#list.hidden && this.#walked(event)) {
      event.preventDefault();
    } else if (event.key === "Escape") {
      this.#leaves = true;
    } else if (event.key === "Tab" && !event.ctrlKey && !event.altKey && !event.metaKey) {
      if (leaves) return;
      event.preventDefault();
      this.#indent(event.shiftKey);
    } else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      const line = this.#area.value.slice(0, this.#area.selectionStart).split("\n").at(-1) ?? "";
      const opens = /:\s*$/.test(line) ? INDENTATION : "";
      this.#insert(`\n${line.match(/^ */)?.[0] ?? ""}${opens}`);
    }
  }

  /**
   * Handles a key while the list of choices is open.
   * @param {KeyboardEvent} event
   * @returns {boolean} Whether the list used the key.
   */
  #walked(event) {
    const last = this.#choices.length - 1;
    switch (event.key) {
      case "ArrowDown":
        this.#show(this.#active === last ? 0 : this.#active + 1);
        break;
      case "ArrowUp":
        this.#show(this.#active === 0 ? last : this.#active - 1);
        break;
      case "Escape":
        this.#close();
        return true;
      case "Enter":
        if (!this.#chosen) {
          this.#close();
          return false;
        }
        this.#take();
        return true;
      case "Tab":
        if (event.shiftKey) return false;
        this.#take();
        return true;
      default:
        return false;
    }
    this.#chosen = true;
    return true;
  }

  /** @param {MouseEvent} event */
  #clicked(event) {
    // Without this, the click would take the focus from the textarea.
    event.preventDefault();
    const item = event.target instanceof Element ? event.target.closest("li") : null;
    if (!item) return;
    this.#active = [...this.#list.children].indexOf(item);
    this.#take();
  }

  /** @param {boolean} asked */
  #complete(asked) {
    const caret = this.#area.selectionStart;
    const found = this.completer?.(this.#area.value, caret);
    const prefix = this.#area.value.slice(found?.from ?? caret, caret);
    const choices = (found?.choices ?? []).filter((choice) => choice.label.startsWith(prefix) && choice.label !== prefix);
    if (!found || choices.length === 0 || (!asked && prefix === "")) {
      this.#close();
      return;
    }
    this.#from = found.from;
    this.#choices = choices.slice(0, MOST);
    this.#chosen = asked;
    const items = this.#choices.map((choice, index) => {
      const item = document.createElement("li");
      item.id = `${this.#list.id}-${index}`;
      item.setAttribute("role", "option");
      const label = document.createElement("b");
      label.textContent = choice.label;
      const detail = document.createElement("span");
      detail.textContent = choice.detail;
      item.append(label, " ", detail);
      return item;
    });
    this.#list.replaceChildren(...items);
    this.#list.hidden = false;
    this.#show(0);
    this.#place();
  }

  /**
   * Makes the choice with this index the active one.
   * @param {number} index
   */
  #show(index) {
    this.#active = index;
    [...this.#list.children].forEach((item, place) => {
      item.setAttribute("aria-selected", String(place === index));
      if (place === index) item.scrollIntoView({ block: "nearest" });
    });
    this.#area.setAttribute("aria-activedescendant", `${this.#list.id}-${index}`);
  }

  /** Places the list below the caret's line, by the width of a character, which is the same for all characters. */
  #place() {
    const before = this.#area.value.slice(0, this.#from).split("\n");
    const style = getComputedStyle(this.#area);
    const ruler = document.createElement("canvas").getContext("2d");
    if (ruler) ruler.font = style.font;
    const width = ruler?.measureText("0").width ?? 8;
    const column = before.at(-1)?.length ?? 0;
    const left = this.#area.offsetLeft + parseFloat(style.paddingLeft) + column * width - this.#area.scrollLeft;
    const top = this.#area.offsetTop + parseFloat(style.paddingTop) + before.length * this.#lineHeight() - this.#area.scrollTop;
    const room = this.clientWidth - this.#list.offsetWidth - 4;
    this.#list.style.left = `${Math.max(0, Math.min(left, room))}px`;
    this.#list.style.top = `${top}px`;
  }

  #close() {
    this.#list.hidden = true;
    this.#area.removeAttribute("aria-activedescendant");
  }

  /** Writes the active choice into the text, and closes the list. */
  #take() {
    const choice = this.#choices[this.#active];
    this.#close();
    if (!choice) return;
    this.#area.setSelectionRange(this.#from, this.#area.selectionEnd);
    this.#insert(choice.insert);
  }

  /**
   * Replaces the selection by a text, in such a way that the user can undo it.
   * @param {string} text
   */
  #insert(text) {
    // This command is deprecated, but no other way keeps the textarea's history for undoing.
    if (document.execCommand("insertText", false, text)) return;
    this.#area.setRangeText(text, this.#area.selectionStart, this.#area.selectionEnd, "end");
    this.#area.dispatchEvent(new InputEvent("input", { bubbles: true }));
  }

  /**
   * Indents the selected lines, or inserts an indentation at the caret. If `less` is true, removes indentation instead.
   * @param {boolean} less
   */
  #indent(less) {
    const { value, selectionStart, selectionEnd } = this.#area;
    if (!less && selectionStart === selectionEnd) {
      this.#insert(INDENTATION);
      return;
    }
    const first = value.lastIndexOf("\n", selectionStart - 1) + 1;
    const lines = value.slice(first, selectionEnd).split("\n");
    const changed = lines.map((line) => (less ? line.replace(/^ {1,2}/, "") : INDENTATION + line)).join("\n");
    this.#area.setSelectionRange(first, selectionEnd);
    this.#insert(changed);
    this.#area.setSelectionRange(lines.length > 1 ? first : first + changed.length, first + changed.length);
  }
}

// A click on a mistake moves the caret to the mistake's line.
document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("[data-editor]") : null;
  const editor = document.getElementById(link?.getAttribute("data-editor") ?? "")?.closest("code-editor");
  if (!link || !(editor instanceof CodeEditor)) return;
  event.preventDefault();
  editor.goTo(Number(link.getAttribute("data-line")));
});

customElements.define("code-editor", CodeEditor);
