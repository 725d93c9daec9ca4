// What holds for the whole page, whichever tab is open. Runs once, when the title is there, behind the scripts whose
// functions the handlers of other components call.

Object.assign(window, { address, openTab, goToTab, startRace, copied, copyLink, keepFilters, openRuns, travel,
  linkedRun, focusRun, leaveRun, focusTravelled, typed, leftRun, keepRun, starting, notStarted, chooseTwo, tell, stepThrough, stepThroughText,
  make });

// A new element, at the end of its parent.
function make(tag, kind, text, parent) {
  const node = document.createElement(tag);
  node.className = kind;
  node.textContent = text;
  parent.append(node);
  return node;
}

// Tells the server of clicks on what has data of that name, with all of its data, or on any of the `around` in which it
// stands; `element` and `trigger` are Gradio's.
function tell(name, element, trigger, around = `[data-${name}]`) {
  element.addEventListener("click", ({ target }) => {
    const clicked = target.closest(`[data-${name}]`) ?? target.closest(around)?.querySelector(`[data-${name}]`);
    if (clicked) trigger("click", { ...clicked.dataset });
  });
}

const OPENED_MS = 10_000; // after which the first tab is shown in any case

// A link to another tab: the first one is not shown until that one is open (openTab).
if (!["play", null].includes(linkedTab())) {
  document.documentElement.classList.add("md-opening");
  setTimeout(opened, OPENED_MS);
}

// A button that was pressed by a key and is then out of use, or gone, would leave the focus to the page's body: it goes to
// the first one of the same group that is in use.

const GROUPS = ".md-buttons, .md-keeps-focus";
let group = null; // where the focus is, or was until its button went

const inUse = (node) => !node.disabled && node.offsetParent !== null;

const watcher = new MutationObserver(() => {
  const focused = document.activeElement;
  if (focused === document.body || !inUse(focused)) {
    [...group.querySelectorAll("button")].find(inUse)?.focus({ preventScroll: true });
  }
});

function keepFocusIn(next) {
  if (next === group) return;
  watcher.disconnect();
  group = next;
  if (group) watcher.observe(group, { attributes: true, childList: true, subtree: true });
}

document.addEventListener("keydown", ({ target }) => keepFocusIn(target.closest(GROUPS)));
document.addEventListener("pointerdown", () => keepFocusIn(null));

// Says below a field what became of a value that it does not take; without a text, nothing any more.
function tellNotTaken(field, text) {
  field?.querySelector(".md-not-taken")?.remove();
  if (text) make("p", "md-not-taken", text, field).setAttribute("role", "alert");
}

// A slider's number that is emptied would become the slider's minimum without a word: what stood there comes back. One
// beyond the slider's ends becomes the end: that is said.

let number = ""; // what stands, or stood, in the number that has the focus

const sliderOf = (node) => node.type === "number" && node.closest(".block")?.querySelector("input[type=range]");

for (const event of ["focusin", "input"]) {
  document.addEventListener(event, ({ target }) => {
    if (target.value && sliderOf(target)) number = target.value;
  });
}
document.addEventListener("blur", ({ target }) => {
  const slider = sliderOf(target);
  if (!slider) return;
  if (target.value === "") {
    target.value = number;
    target.dispatchEvent(new Event("input", { bubbles: true }));
  }
  const typed = target.value, { min, max } = slider, fits = Number(typed) >= Number(min) && Number(typed) <= Number(max);
  setTimeout(() => tellNotTaken(target.closest(".block"),
    fits ? "" : `Set to ${target.value}: ${typed} is not between ${min} and ${max}.`), 100);
}, true);

document.addEventListener("input", ({ target }) => tellNotTaken(target.closest(".block"), ""));

// What is typed into a field with a list takes the place of what stands in it, and does not follow it. The list begins
// at its top if that shows the chosen entry; Gradio scrolls it while its entries are not yet laid out.
document.addEventListener("focusin", ({ target }) => {
  if (!target.matches("input[role=combobox]")) return;
  requestAnimationFrame(() => {
    target.select();
    const list = document.getElementById(target.getAttribute("aria-controls"));
    list?.setAttribute("tabindex", "-1"); // what scrolls is a stop of Chromium's Tab, and it is gone when reached
    list?.scrollTo(0, 0);
    list?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  });
});

// Buttons that copy the address of a page of this site, and say so.
document.addEventListener("click", async ({ target }) => {
  const button = target.closest?.("[data-copy]");
  if (!button) return;
  button.textContent = await copied(new URL(button.dataset.copy, location.href).href);
  setTimeout(() => { button.textContent = "Copy link"; }, 2000);
});

// What this tab keeps while the page is loaded again; nothing where the browser refuses it, as it may to a Space's frame.
function kept(name) {
  try {
    return sessionStorage.getItem(name) ?? "";
  } catch {
    return "";
  }
}
function keep(name, value) {
  try {
    if (value) sessionStorage.setItem(name, value);
    else sessionStorage.removeItem(name);
  } catch {}
}

// The run that was under way when the page was loaded again, as long as no other one is asked for.
let left = kept("run");
function leftRun() {
  return left;
}
function keepRun(id) {
  if (!id) return;
  ran();
  keep("run", id);
  const prompt = document.querySelector("#prompt textarea").value;
  if (prompt) keep("prompt", prompt);
}

// Results take the place of Play's recording at the click that asks for a run: later, what moves would be in the way.

const noRecording = () => document.documentElement.classList.add("md-ran");
if (new URLSearchParams(location.search).has("prompt")) noRecording(); // a link's prompt: the recording answers another one
function ran() {
  noRecording();
  left = "";
}
document.addEventListener("click", ({ target }) => { if (target.closest("#run")) ran(); }, true);

// On a slow network the server's first word of a run takes its time: until then the page says that it is starting, and if
// the server does not take it, that it has not (answered_at_once of jobs.py). The button is out of use meanwhile. Where it
// is so already, a run is under way, and whoever asks for another one, by a key or on another tab, is told below the prompt.
const live = (interactive, value) => ({ interactive, ...(value && { value }), __type__: "update" });
function starting(button, said, busy, waits) {
  const node = document.getElementById(button), free = !node?.disabled;
  const prompt = node?.closest(".tabitem")?.querySelector("#prompt, #race-prompt");
  if (prompt) tellNotTaken(prompt, free ? "" : waits);
  return free ? [said, live(false, busy)] : [];
}
function notStarted(shown, said, title) {
  return [shown?.includes("md-starting") ? said : undefined, live(true, title)];
}

// What a run shows is scrolled to where it begins in the lower half of the window, and on a phone, there at once: the
// first words are not to be missed, so this does not wait for Gradio's events.
const SHOWS = { run: "#status", "race-run": "#race-status", "batch-run": "#batch-status" };
document.addEventListener("click", ({ target }) => {
  const selector = SHOWS[target.closest("button")?.id];
  if (!selector) return;
  const shown = document.querySelector(selector);
  const phone = innerWidth < 760;
  if (phone) selectNothing();
  if (phone || shown.getBoundingClientRect().top > innerHeight / 2) shown.scrollIntoView({ behavior: phone ? "instant" : "smooth" });
}, true);

// The second tap of a double one lands on what has come there, and would select it.
function selectNothing() {
  document.documentElement.style.userSelect = "none";
  setTimeout(() => { document.documentElement.style.userSelect = ""; }, 600);
}

document.addEventListener("keydown", ({ key, shiftKey, target }) => {
  if (key === "Enter" && shiftKey && target.closest("#prompt")) ran();
}, true);

// A prompt that was typed or run is there again after a reload, unless the address or an example has put another there.
function typed(id, shown) {
  const named = new URLSearchParams(location.search).has(id === "prompt" ? id : "race");
  return (!named && kept(id)) || shown;
}
document.addEventListener("input", ({ target }) => {
  const field = target.closest("#prompt, #race-prompt");
  if (field) keep(field.id, target.value);
});
document.addEventListener("click", ({ target }) => {
  const example = target.closest(["", "race-"].map((tab) => `button[id^=${tab}example-], #${tab}example-task label`).join());
  if (example) keep(example.closest("[id^=race-]") ? "race-prompt" : "prompt", "");
});
