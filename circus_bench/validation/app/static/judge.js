// The judging page: keys, the state of the form, saving, and what happens while the network is away.

import { Outbox } from "./outbox.js";
import { Viewer } from "./viewer.js";

const id = (name) => document.getElementById(name);
const outbox = new Outbox(document.body.dataset.outbox);
const viewer = new Viewer();
const stage = id("stage");
const RETRY = 2000;

let busy = false; // from saving an item until the next one is shown
let sent = null; // key of the delivery that the item on the screen waits for
let ahead = []; // items to come, for the time without a network
let conflict = null;
let coming = null; // the item after a training item's feedback

// Time on the screen, without the time in another tab.
let shownSince = performance.now();
let shownBefore = 0;
document.addEventListener("visibilitychange", () => {
  if (document.hidden) shownBefore += performance.now() - shownSince;
  else shownSince = performance.now();
});
const secondsShown = () => (shownBefore + (document.hidden ? 0 : performance.now() - shownSince)) / 1000;

// ---- The form

const form = () => id("answer");
const sound = () => form().elements.sound;
const all = (selector) => [...form().querySelectorAll(selector)];
const checked = (name) => all(`input[name=${name}]:checked`).map((input) => input.value);
const followUps = () => all("[data-follow-up]");
const answerOf = (entry) => entry.querySelector("input:checked")?.value;

function refresh(changed) {
  if (changed === sound() && sound().checked) all("input[name=flag]").forEach((flag) => (flag.checked = false));
  if (changed?.name === "flag" && changed.checked) sound().checked = false;
  for (const more of all("[data-of]")) {
    const of = more.dataset.of;
    more.hidden = of === "sound" ? !sound().checked : !checked("flag").includes(of);
  }
  if (id("breadth")) {
    const targets = form().dataset.targets.split(" ");
    const count = checked("alternative").filter((name) => !targets.includes(name)).length;
    id("breadth").textContent = count;
    if (id("too-broad")) id("too-broad").hidden = count < Number(form().dataset.breadth);
  }
  id("problem").textContent = "";
}

function problemOf() {
  if (!sound().checked && checked("flag").length === 0) return "Choose “sound”, or what is wrong.";
  if (sound().checked && followUps().some((entry) => !answerOf(entry))) return "Answer the questions first: Y or N.";
  return "";
}

// Half of a character, as a note cut at its greatest length may end with, cannot be stored.
const wellFormed = (text) => text.toWellFormed?.() ?? text;

function annotation() {
  const valid = sound().checked;
  const flags = checked("flag");
  return {
    item: form().dataset.item,
    replaces: Number(form().dataset.replaces),
    sound: valid,
    flags,
    reasons: checked("reason").filter((reason) => flags.includes(reason.split(".")[0])),
    answers: valid ? Object.fromEntries(followUps().map((e) => [e.dataset.followUp, answerOf(e) === "yes"])) : {},
    alternatives: checked("alternative"),
    note: wellFormed(form().elements.note.value),
    seconds: Math.round(secondsShown() * 10) / 10,
  };
}

// ---- Showing items

function show(item) {
  stage.innerHTML = item.html;
  busy = false;
  sent = coming = null;
  shownBefore = 0;
  shownSince = performance.now();
  ahead = ahead.filter((other) => other.item !== item.item);
  history.replaceState(null, "", "/judge?begin");
  prepare();
  scrollTo(0, 0);
  stage.querySelector("h1").focus({ preventScroll: true });
}

function prepare() {
  refresh();
  lookAhead();
}

async function fetchItem(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

// Fetch the items to come, and the next one's images.
async function lookAhead() {
  const item = form().dataset.item;
  try {
    const found = await fetchItem(`/items/ahead?after=${item}`);
    if (form()?.dataset.item !== item) return;
    ahead = found;
    for (const address of ahead.flatMap((other) => other.images)) new Image().src = address;
  } catch {
    // What was fetched before still stands.
  }
}

async function goTo(name) {
  const known = ahead.find((item) => item.item === name);
  if (known) return show(known);
  const left = form();
  try {
    show(await fetchItem(name ? `/items/${name}` : "/items/next"));
    sayWhatWaits();
  } catch (error) {
    if (!(error instanceof TypeError)) return location.assign("/judge?begin"); // also the end, and the way to sign in
    // The network is away: going to a page would end at the browser's own.
    say("Saved; waiting for the network", "wait");
    setTimeout(() => form() === left && goTo(name), RETRY);
  }
}

// ---- Saving

function lock(locked) {
  id("fields").disabled = locked;
  all("input[name=alternative]").forEach((input) => (input.disabled = locked));
  for (const name of ["save", "put-off", "undo"]) id(name).disabled = locked;
}

async function deliver(path, body) {
  if (busy) return;
  busy = true;
  lock(true);
  sent = outbox.add(path, body);
  await outbox.flush();
  goOnIfDelivered();
}

// Another tab may have delivered what this one waits for, now or while the network was away.
function goOnIfDelivered() {
  if (!sent || outbox.has(sent)) return;
  sent = null;
  goTo(null);
}

function save() {
  const problem = problemOf();
  id("problem").textContent = problem;
  if (!problem) deliver("/judgements", annotation());
}

function advance(content) {
  busy = true;
  sent = null;
  id("progress").innerHTML = content.progress;
  if (content.feedback) {
    coming = content;
    id("feedback").innerHTML = content.feedback;
    id("feedback").hidden = false;
    id("waiting").hidden = true;
    id("continue").focus();
  } else if (content.next) goTo(content.next);
  else location.assign("/judge?begin");
}

outbox.addEventListener("acknowledged", ({ detail }) => {
  const here = form();
  // An item that was judged before a reload is not asked for a second time.
  if (detail.key === sent || (here && !busy && detail.body.item === here.dataset.item)) advance(detail.content);
  else id("progress").innerHTML = detail.content.progress;
});
outbox.addEventListener("elsewhere", goOnIfDelivered);
outbox.addEventListener("refused", ({ detail }) => {
  say(`Not saved: ${detail.content.error}`, "bad");
  if (detail.key === sent) {
    busy = false;
    sent = null;
    lock(false);
    id("problem").textContent = `The server refused this annotation: ${detail.content.error}`;
  }
});
outbox.addEventListener("conflict", ({ detail }) => {
  conflict = detail;
  id("conflict-stored").innerHTML = detail.content.stored.html;
  if (!id("conflict").open) id("conflict").showModal();
});
outbox.addEventListener("away", () => {
  if (!sent || !form()) return;
  id("waiting").hidden = false;
  id("go-on").hidden = ahead.length === 0;
  if (ahead.length) id("go-on").focus();
});
outbox.addEventListener("signed-out", () => {
  say(`Signed out; ${outbox.size} kept in this browser. Open your link again, or reload this page.`, "bad");
});
outbox.addEventListener("change", sayWhatWaits);

function sayWhatWaits() {
  if (outbox.size) say(`Waiting for the network: ${outbox.size}`, "wait");
  else say("Saved", "good");
}

function say(text, kind) {
  const state = id("state");
  if (state.textContent !== text) state.textContent = text;
  state.className = `state ${kind}`;
}

function settle(replace) {
  const { body, content } = conflict;
  const waited = conflict.key === sent;
  outbox.remove(conflict.key);
  conflict = null;
  id("conflict").close();
  if (waited) sent = null;
  if (replace) {
    const { event: _, ...again } = body;
    const key = outbox.add("/judgements", { ...again, replaces: content.stored.version });
    if (waited) sent = key;
    outbox.flush();
  } else if (waited) goTo(null);
}

async function undo() {
  const item = form()?.dataset.item;
  if (!item) return document.querySelector("#finished a.button")?.click();
  if (busy) return;
  try {
    const before = await fetchItem(`/items/before?item=${item}`);
    if (before.item) show(before);
    else id("problem").textContent = "There is no item before this one.";
  } catch {
    id("problem").textContent = "The network is away.";
  }
}

// ---- Keys and clicks

const actions = {
  u: undo,
  l: () => form() && deliver("/later", { item: form().dataset.item }),
  g: () => !id("waiting")?.hidden && ahead.length && show(ahead[0]),
  z: () => viewer.open(form(), document.activeElement.closest(".candidate")),
  p: () => form()?.querySelector("input[name=alternative]")?.focus(),
  m: () => {
    id("note").closest("details").open = true;
    id("note").focus();
  },
  "?": () => id("keys").showModal(),
  y: () => answerNext("yes"),
  n: () => answerNext("no"),
};

function answerNext(value) {
  if (!sound()?.checked) return;
  const open = followUps().find((entry) => !answerOf(entry));
  open?.querySelector(`input[value=${value}]`).click();
}

// The key of a yes-or-no question says yes; pressed again, no.
function answer(control) {
  const other = control.type === "radio" && control.checked;
  (other ? control.closest("fieldset").querySelector("input:not(:checked)") : control).click();
}

function moveInPanel(event) {
  const boxes = all("input[name=alternative]");
  const place = boxes.indexOf(document.activeElement);
  if (place < 0) return;
  const top = boxes[0].getBoundingClientRect().top;
  const columns = boxes.filter((box) => Math.abs(box.getBoundingClientRect().top - top) < 5).length;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
  boxes[place + step]?.focus();
  if (step) event.preventDefault();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { target, key } = event;
  const dialog = document.querySelector("dialog[open]");
  if (dialog) {
    // The browser would close it a moment later, and the key after that would be lost.
    if (key === "Escape" && dialog !== id("conflict")) dialog.close();
    return;
  }
  if (target.matches("textarea")) {
    if (key === "Escape") target.blur();
    return;
  }
  if (key === "Enter") {
    // Right after a dialog was closed, the focus may still be on a button in it.
    if ((target.matches("button, a, summary") && target.checkVisibility()) || !form()) return;
    event.preventDefault();
    if (!coming) save();
    return;
  }
  if (key.startsWith("Arrow") && form()) return moveInPanel(event);
  const control = form()?.querySelector(`[data-key="${CSS.escape(key.toLowerCase())}"]`);
  if (control && control.checkVisibility() && !control.matches(":disabled")) {
    event.preventDefault();
    answer(control);
  } else if (Object.hasOwn(actions, key.toLowerCase())) {
    event.preventDefault();
    actions[key.toLowerCase()]();
  }
});

document.addEventListener("submit", (event) => {
  if (event.target.id !== "answer") return;
  event.preventDefault();
  save();
});
document.addEventListener("change", (event) => form()?.contains(event.target) && refresh(event.target));
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.matches(".zoom-all")) viewer.open(form(), form().querySelector(".candidate"));
  if (button.matches(".zoom")) viewer.open(form(), button);
  if (button.id === "put-off") actions.l();
  if (button.id === "undo") undo();
  if (button.id === "go-on") actions.g();
  if (button.id === "show-keys") actions["?"]();
  if (button.id === "continue") coming.next ? goTo(coming.next) : location.assign("/judge?begin");
  if (button.id === "conflict-keep") settle(false);
  if (button.id === "conflict-replace") settle(true);
});
id("conflict").addEventListener("cancel", (event) => event.preventDefault()); // it has to be decided

if (form()) prepare();
outbox.flush();
document.body.dataset.ready = ""; // keys are heard from here on
