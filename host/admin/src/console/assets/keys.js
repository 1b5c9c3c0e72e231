// Handles keys: `/` and Ctrl K open a list of all pages and chains, `j` and `k` move through the rows of tables.

class CommandPalette {
  #dialog = document.createElement("dialog");
  #input = document.createElement("input");
  #list = document.createElement("ul");
  /** @type {HTMLAnchorElement[]} The links to all pages and chains; empty until they are fetched. */
  #links = [];

  constructor() {
    this.#dialog.className = "palette";
    this.#dialog.setAttribute("aria-label", "Go to");
    this.#input.type = "text";
    this.#input.setAttribute("aria-label", "A page, a chain, or a text in decisions");
    this.#input.placeholder = "A page, a chain, or a text in decisions";
    this.#dialog.append(this.#input, this.#list);
    this.#input.addEventListener("input", () => this.#draw());
    this.#dialog.addEventListener("keydown", (event) => this.#pressed(event));
    this.#dialog.addEventListener("click", (event) => event.target === this.#dialog && this.#dialog.close());
  }

  async open() {
    if (this.#dialog.open) return;
    if (!this.#dialog.isConnected) document.body.append(this.#dialog);
    this.#input.value = "";
    this.#dialog.showModal();
    this.#draw();
    if (this.#links.length === 0) {
      const reply = await fetch("/go");
      const page = new DOMParser().parseFromString(await reply.text(), "text/html");
      this.#links = [...page.querySelectorAll("#destinations a")].filter((link) => link instanceof HTMLAnchorElement);
      this.#draw();
    }
  }

  #draw() {
    const words = this.#input.value.toLowerCase().split(/\s+/);
    const has = (/** @type {HTMLAnchorElement} */ link) =>
      words.every((word) => link.textContent?.toLowerCase().includes(word));
    const shown = this.#links.filter(has).slice(0, 12);
    if (this.#input.value.trim() !== "") {
      const search = document.createElement("a");
      search.href = `/live?text=${encodeURIComponent(this.#input.value.trim())}`;
      search.textContent = `Decisions with “${this.#input.value.trim()}”`;
      shown.push(search);
    }
    this.#list.replaceChildren(
      ...shown.map((link) => {
        const item = document.createElement("li");
        item.append(link);
        return item;
      }),
    );
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    if (event.key === "Enter" && event.target === this.#input) {
      event.preventDefault();
      this.#list.querySelector("a")?.click();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const stops = [this.#input, ...this.#list.querySelectorAll("a")];
      move(stops, event.key === "ArrowDown" ? 1 : -1);
    }
  }
}

/**
 * Moves the focus by `step` elements within a list of elements.
 * @param {HTMLElement[]} stops
 * @param {number} step
 */
function move(stops, step) {
  const active = document.activeElement;
  const now = stops.findIndex((stop) => stop === active);
  const next = now === -1 && step < 0 ? stops.length - 1 : now + step;
  stops[Math.max(0, Math.min(stops.length - 1, next))]?.focus();
}

/** @returns {HTMLElement[]} The first link of each row, without the rows that are replaced while a page is open. */
function rows() {
  const links = [...document.querySelectorAll('main tbody:not([data-part="chains"]) tr')].map((row) => row.querySelector("a"));
  return links.filter((link) => link !== null);
}

const palette = new CommandPalette();

document.addEventListener("keydown", (event) => {
  const target = event.target;
  const isWriting = target instanceof Element && target.matches("input, textarea, select");
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    palette.open();
  } else if (isWriting || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  } else if (event.key === "/") {
    event.preventDefault();
    palette.open();
  } else if (event.key === "j" || event.key === "k") {
    move(rows(), event.key === "j" ? 1 : -1);
  }
});
