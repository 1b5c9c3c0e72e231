// <copy-text>: a button that copies the text of the element that `from` names.

/** How long the button says that it copied. */
const CONFIRMATION = 2000;

class CopyText extends HTMLElement {
  connectedCallback() {
    const button = document.createElement("button");
    button.type = "button";
    const label = this.getAttribute("label") ?? "Copy";
    button.textContent = label;
    button.addEventListener("click", async () => {
      const text = document.getElementById(this.getAttribute("from") ?? "")?.textContent ?? "";
      button.textContent = (await copy(text)) ? "Copied" : "Select the text to copy it";
      setTimeout(() => (button.textContent = label), CONFIRMATION);
    });
    // Its change is announced to those who do not see it.
    button.setAttribute("aria-live", "polite");
    this.replaceChildren(button);
  }
}

/**
 * @param {string} text
 * @returns {Promise<boolean>} Whether it is in the clipboard.
 */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Not allowed, or the page came without TLS from another machine.
    return false;
  }
}

customElements.define("copy-text", CopyText);
