// Defines <live-decisions>, which adds new decisions at the top of a table, and updates the numbers of the chains.
//
// The server sends whole rows, in the same HTML as in the page.

/** The maximum number of rows in the table. Older decisions are removed, and remain on other pages. */
const ROWS = 300;

/** @typedef {{ rows: string, missed: number }} Arrived */

class LiveDecisions extends HTMLElement {
  /** @type {EventSource | undefined} */
  #source;
  #button = document.createElement("button");
  #state = document.createElement("span");
  /** The id of the newest decision that the server has sent. */
  #last = "";

  connectedCallback() {
    this.#last = this.getAttribute("after") ?? "";
    this.#button.type = "button";
    this.#button.addEventListener("click", () => (this.#source ? this.#stop() : this.#go()));
    this.#state.className = "live-state";
    this.#state.setAttribute("role", "status");
    this.#part("controls").replaceChildren(this.#button, this.#state);
    this.#go();
  }

  disconnectedCallback() {
    this.#source?.close();
  }

  #go() {
    const address = new URL(this.getAttribute("src") ?? "", location.href);
    if (this.#last !== "") address.searchParams.set("after", this.#last);
    const source = new EventSource(address);
    source.addEventListener("open", () => this.#tell("Stop", "Live"));
    source.addEventListener("error", () => this.#failed(source));
    source.addEventListener("decisions", (event) => this.#arrived(event));
    source.addEventListener("chains", (event) => {
      this.#part("chains").innerHTML = JSON.parse(event.data);
    });
    this.#source = source;
    this.#tell("Stop", "Connecting …");
  }

  #stop() {
    this.#source?.close();
    this.#source = undefined;
    this.#tell("Go", "Stopped");
  }

  /** @param {EventSource} source */
  #failed(source) {
    if (source.readyState === EventSource.CLOSED) {
      this.#stop();
      this.#tell("Go", "The driver refused: reload the page, and sign in if it asks you to");
    } else {
      this.#tell("Stop", "Connection lost, trying again …");
    }
  }

  /** @param {MessageEvent<string>} event */
  #arrived(event) {
    /** @type {Arrived} */
    const { rows, missed } = JSON.parse(event.data);
    this.#last = event.lastEventId;
    const table = this.#part("decisions");
    table.insertAdjacentHTML("afterbegin", rows);
    while (table.children.length > ROWS) table.lastElementChild?.remove();
    this.#tell("Stop", missed > 0 ? `Live; ${missed} came too fast to show` : "Live");
  }

  /**
   * @param {string} label The text of the button, which says what a click does.
   * @param {string} state
   */
  #tell(label, state) {
    if (this.#button.textContent !== label) this.#button.textContent = label;
    if (this.#state.textContent !== state) this.#state.textContent = state;
  }

  /**
   * @param {string} name
   * @returns {Element} The element with this `data-part` within this element.
   */
  #part(name) {
    const part = this.querySelector(`[data-part="${name}"]`);
    if (!part) throw new Error(`the page has no part ${name}`);
    return part;
  }
}

customElements.define("live-decisions", LiveDecisions);
