// The outbox: what was judged stays in this browser until the server has acknowledged it.
//
// Each delivery has an entry of its own in localStorage, so that two tabs never overwrite each other's, and an event id
// by which the server recognizes a delivery that it has had before. Deliveries are sent one at a time, in order.

import { post } from "./account.js";

const TIMEOUT = 15_000;
const PAUSES = [1000, 2000, 5000, 10_000];

export class Outbox extends EventTarget {
  #prefix;
  #memory = new Map(); // what localStorage would not take
  #aside = new Set(); // conflicts that the person has still to decide; asked for again after a reload
  #running = Promise.resolve();
  #failures = 0;
  #timer = null;
  #counter = 0;

  constructor(name) {
    super();
    this.#prefix = `circus-bench outbox ${name} `;
    addEventListener("online", () => this.flush());
    addEventListener("storage", (event) => {
      if (!event.key?.startsWith(this.#prefix)) return;
      this.#tell("change");
      this.#tell("elsewhere");
    });
  }

  // Put a delivery in; it is sent by flush().
  add(path, body) {
    const event = crypto.randomUUID?.() ?? randomId();
    const time = String(Date.now()).padStart(15, "0");
    const count = String(this.#counter++).padStart(6, "0");
    const key = `${this.#prefix}${time} ${count} ${event}`;
    this.#set(key, { path, body: { ...body, event } });
    this.#tell("change");
    return key;
  }

  // Take a delivery out: it is acknowledged, or the person has decided against it.
  remove(key) {
    this.#memory.delete(key);
    this.#aside.delete(key);
    localStorage.removeItem(key);
    this.#tell("change");
  }

  has(key) {
    return this.#keys().includes(key);
  }

  get size() {
    return this.#keys().length;
  }

  // Send everything. Resolves when nothing is left to send now: all acknowledged, or the network is away.
  flush() {
    clearTimeout(this.#timer);
    this.#running = this.#running.then(() => this.#exclusively(() => this.#send()));
    return this.#running;
  }

  // Where the browser has locks, only one tab sends at a time; where not, the server tells repeated deliveries.
  #exclusively(work) {
    return navigator.locks ? navigator.locks.request(this.#prefix, work) : work();
  }

  async #send() {
    for (let key = this.#first(); key; key = this.#first()) {
      const { path, body } = this.#get(key);
      let answer, content;
      try {
        answer = await post(path, body, AbortSignal.timeout(TIMEOUT));
        content = await answer.json();
      } catch {
        return this.#wait("away");
      }
      if (answer.status === 401 || answer.status === 403) return this.#wait("signed-out", content);
      if (answer.status >= 500 || answer.status === 429) return this.#wait("away", content);
      this.#failures = 0;
      const kind = answer.ok ? "acknowledged" : answer.status === 409 ? "conflict" : "refused";
      if (kind === "conflict") this.#aside.add(key);
      else this.remove(key);
      if (kind === "refused") this.#set(key.replace("outbox", "refused"), { path, body, content });
      this.#tell(kind, { key, path, body, content });
    }
  }

  #first() {
    return this.#keys().find((key) => !this.#aside.has(key));
  }

  #wait(why, content) {
    const pause = PAUSES[Math.min(this.#failures++, PAUSES.length - 1)];
    this.#timer = setTimeout(() => this.flush(), pause);
    this.#tell("change");
    this.#tell(why, content ?? {});
  }

  #tell(kind, detail) {
    this.dispatchEvent(new CustomEvent(kind, { detail }));
  }

  #keys() {
    const stored = Object.keys(localStorage).filter((key) => key.startsWith(this.#prefix));
    return [...stored, ...this.#memory.keys()].sort();
  }

  #get(key) {
    return this.#memory.get(key) ?? JSON.parse(localStorage.getItem(key));
  }

  #set(key, entry) {
    try {
      localStorage.setItem(key, JSON.stringify(entry));
    } catch {
      this.#memory.set(key, entry);
    }
  }
}

// For pages without a secure context, where crypto.randomUUID does not exist.
function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
