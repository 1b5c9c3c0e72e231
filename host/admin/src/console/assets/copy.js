// Defines <copy-text>, a button that copies the text of the element whose id is in the attribute `from`.

/** The time in milliseconds for which the button shows that the text was copied. */
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
    // Screen readers announce the new text of the button.
    button.setAttribute("aria-live", "polite");
    this.replaceChildren(button);
  }
}

/**
 * @param {string} text
 * @returns {Promise<boolean>} Whether the text is now in the clipboard.
 */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // The user has not allowed it, or the page was loaded from another machine without TLS.
    return false;
  }
}

customElements.define("copy-text", CopyText);
