// The viewer: the images of an item, one at a time and as large as the window allows.

const id = (name) => document.getElementById(name);

export class Viewer {
  #shown = [];
  #place = 0;

  constructor() {
    id("viewer-before").addEventListener("click", () => this.#go(-1));
    id("viewer-after").addEventListener("click", () => this.#go(1));
    id("viewer-close").addEventListener("click", () => id("viewer").close());
    id("viewer-toggle").addEventListener("click", () => this.#toggle());
    id("viewer").addEventListener("keydown", (event) => this.#key(event));
  }

  // Show the images of a form, starting with that of an element.
  open(form, element) {
    if (!form) return;
    this.#shown = [...form.querySelectorAll("[data-view]")];
    this.#place = Math.max(0, this.#shown.indexOf(element));
    id("viewer-text").textContent = form.querySelector(".change .text").textContent;
    this.#go(0);
    id("viewer").showModal();
  }

  #go(step) {
    this.#place = (this.#place + step + this.#shown.length) % this.#shown.length;
    const element = this.#shown[this.#place];
    id("viewer-image").src = `/images/${element.dataset.view}`;
    id("viewer-image").alt = id("viewer-caption").textContent = element.dataset.caption;
    const box = element.querySelector("input");
    id("viewer-toggle").hidden = !box;
    id("viewer-toggle").setAttribute("aria-pressed", String(Boolean(box?.checked)));
    id("viewer-toggle").disabled = Boolean(box?.disabled);
  }

  #toggle() {
    this.#shown[this.#place].querySelector("input")?.click();
    this.#go(0);
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) this.#go(step);
    else if (event.key === " " && !id("viewer-toggle").hidden) this.#toggle();
    else if (event.key.toLowerCase() === "z") id("viewer").close();
    else return;
    event.preventDefault();
  }
}
