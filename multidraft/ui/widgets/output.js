// The output of a run and, below it, the timeline of its rounds; either shows what is pointed at in the other.
// Runs once, when the component is there; `element`, `props` and `watch` are Gradio's. props.value is the HTML of
// tokens.rounds_html, which only grows during a run: what is new is appended, what is there is touched again only where the
// same rounds were timed anew.

const HINT = "One bar per round: its height is the draft, the filled part what the target accepted, a dot its correction. " +
  (matchMedia("(hover: none)").matches
    ? "Tap a bar or the text; Step through a round shows how it went."
    : "Point at a bar or the text, or use the arrow keys; Enter shows the round step by step.");
const LIVE_MS = 25; // a round that took so long is shown when it comes, a quicker one for longer than it took
const NEAR = 40; // pixels from the end at which the reader counts as following it

const text = element.querySelector(".md-output");
const timeline = element.querySelector(".md-timeline");
const about = element.querySelector(".md-run-about span");

const frame = element.querySelector(".md-run");
const SHOWN_MS = Number(frame.dataset.roundMs); // for how long
const CATCH_UP_MS = Number(frame.dataset.playedMs); // in which all that is there is shown at the latest
let longest = Number(frame.style.getPropertyValue("--longest")); // draft that a bar of full height stands for

let shown = ""; // the part of the value that is in the page
let chosen = -1; // the round that was clicked or reached by keys
let lit = -1; // the round that is highlighted: the one pointed at, else the chosen one

let coming = 0; // rounds that are in the page and not shown yet
let pace = SHOWN_MS; // milliseconds per round
let timer = null; // until the next of them is
let took = 0, slowed = false; // milliseconds that all rounds took; whether any was shown in slow motion

const title = element.querySelector(".md-run-title > span"), skip = element.querySelector(".md-run-skip");

let ended = false; // whether the run is over: then its beginning is shown to whoever has followed it
let follows = true; // whether the reader is at the end of the text
let scrolled = 0; // where the text was scrolled to last

function makeBar(round, bars) {
  const { arm, drafted, accepted, corrected } = round.dataset;
  const bar = make("span", `md-bar md-coming ${arm}`, "", bars);
  bar.style.setProperty("--drafted", drafted);
  if (Number(drafted) > longest) frame.style.setProperty("--longest", (longest = Number(drafted)));
  bar.style.setProperty("--accepted", accepted);
  bar.toggleAttribute("data-corrected", corrected !== undefined);
}

// The same rounds with other times: what is on the page stays as it is, but for them.
function timeAnew(value) {
  const fresh = document.createElement("template");
  fresh.innerHTML = value;
  const rounds = [...fresh.content.children];
  if (!shown || fresh.content.textContent !== text.textContent || rounds.length !== text.childElementCount) return false;
  took = 0;
  rounds.forEach(({ title, dataset: { ms, step } }, index) => {
    const round = text.children[index];
    round.title = title;
    Object.assign(round.dataset, { ms, step });
    took += Number(ms);
  });
  shown = value;
  tellPace();
  describe();
  return true;
}

function show() {
  const value = props.value ?? "";
  if (!value.startsWith(shown)) {
    if (timeAnew(value)) return;
    light(-1);
    chosen = -1;
    shown = "";
    coming = took = 0;
    slowed = false;
    follows = true;
    ended = false;
    text.replaceChildren();
    timeline.replaceChildren();
  }
  text.insertAdjacentHTML("beforeend", value.slice(shown.length));
  element.querySelector(".md-step-open").disabled = !text.childElementCount;
  shown = value;
  const bars = document.createDocumentFragment();
  let round = text.children[timeline.childElementCount];
  for (; round; round = round.nextElementSibling) {
    round.classList.add("md-coming");
    makeBar(round, bars);
    coming++;
    took += Number(round.dataset.ms);
  }
  timeline.append(bars);
  pace = Math.min(SHOWN_MS, CATCH_UP_MS / coming);
  if (document.hidden || matchMedia("(prefers-reduced-motion: reduce)").matches) showAll();
  else if (timer === null) showNext();
  timeline.setAttribute("aria-valuemax", timeline.childElementCount);
  requestAnimationFrame(follow); // not now: it would lay out the page once more
  describe();
}

// Text is not pasted in one piece: rounds that are quicker than anyone can watch are shown in slow motion.
function showNext() {
  timer = null;
  const index = timeline.childElementCount - coming, round = text.children[index];
  if (!round) {
    skip.hidden = true;
    return end();
  }
  for (const node of [round, timeline.children[index]]) node.classList.remove("md-coming");
  coming--;
  follow();
  const ms = Number(round.dataset.ms), slow = ms < LIVE_MS && pace > ms;
  slowed ||= slow;
  tellPace();
  skip.hidden = !slow || !coming;
  timer = setTimeout(showNext, slow ? pace : Math.min(ms, CATCH_UP_MS / (coming + 1)));
}

function tellPace() {
  const motion = ended ? `Slow motion: decoding took ${(took / 1000).toFixed(2)} s` : "Slow motion";
  title.textContent = slowed ? motion : "Rounds";
}

function showAll() {
  clearTimeout(timer);
  timer = null;
  for (const node of element.querySelectorAll(".md-coming")) node.classList.remove("md-coming");
  coming = 0;
  skip.hidden = true;
  follow();
}

// A whole answer is read from its beginning.
function end() {
  if (!ended || !follows || chosen >= 0) return;
  for (const box of [text, timeline]) box.scrollTo({ top: 0, left: 0, behavior: "smooth" });
}

document.addEventListener("md-ended", () => {
  ended = true;
  tellPace();
  if (timer === null) end();
});

// Keep the end in sight, unless the reader chose a round or scrolled up to read.
function follow() {
  if (chosen >= 0 || !follows) return;
  text.scrollTop = text.scrollHeight;
  timeline.scrollLeft = timeline.scrollWidth;
}

function light(index) {
  for (const list of [text, timeline]) {
    list.children[lit]?.classList.remove("md-lit");
    list.children[index]?.classList.add("md-lit");
  }
  lit = index;
  describe();
}

function describe() {
  const title = text.children[lit]?.title;
  about.textContent = title ?? HINT;
  about.parentElement.dataset.hint = HINT;
  timeline.setAttribute("aria-valuenow", lit + 1);
  timeline.setAttribute("aria-valuetext", title ?? `${timeline.childElementCount} rounds`);
}

// Choose a round and bring it into sight in both boxes, without moving the page.
function choose(index) {
  showAll();
  chosen = index;
  light(index);
  const round = text.children[index], bar = timeline.children[index];
  if (!round) return;
  const top = round.getBoundingClientRect().top - text.getBoundingClientRect().top;
  if (top < 0 || top > text.clientHeight - NEAR) text.scrollTop += top - text.clientHeight / 2;
  const left = bar.getBoundingClientRect().left - timeline.getBoundingClientRect().left;
  if (left < 0 || left > timeline.clientWidth - NEAR) timeline.scrollLeft += left - timeline.clientWidth / 2;
}

function indexOf(node) {
  const item = node.closest(".md-round, .md-bar");
  return item ? [...item.parentElement.children].indexOf(item) : -1;
}

for (const list of [text, timeline]) {
  list.addEventListener("pointerover", (event) => {
    const index = indexOf(event.target);
    light(index < 0 ? chosen : index);
  });
  list.addEventListener("pointerleave", () => light(chosen));
  list.addEventListener("click", (event) => {
    if (!getSelection().isCollapsed) return; // the reader marks text
    const index = indexOf(event.target);
    choose(index === chosen ? -1 : index);
  });
}

// Only scrolling up leaves the end: new text moves it away as well, before the box is scrolled after it.
text.addEventListener("scroll", () => {
  const atEnd = text.scrollHeight - text.scrollTop - text.clientHeight < NEAR;
  if (atEnd || text.scrollTop < scrolled) follows = atEnd;
  scrolled = text.scrollTop;
});

timeline.addEventListener("keydown", (event) => {
  const last = timeline.childElementCount - 1;
  const to = { Home: 0, End: last, ArrowLeft: chosen - 1, ArrowDown: chosen - 1, ArrowRight: chosen + 1,
    ArrowUp: chosen + 1, PageDown: chosen - 10, PageUp: chosen + 10 }[event.key];
  if (to === undefined && event.key !== "Escape" && event.key !== "Enter") return;
  event.preventDefault(); // Enter, too: it would press the button that has the focus then
  if (event.key === "Enter") stepThroughText(element);
  else choose(to === undefined ? -1 : Math.max(0, Math.min(last, to)));
});

element.querySelector(".md-run-rejected input").addEventListener("change", (event) => {
  text.classList.toggle("md-with-rejected", event.target.checked);
});

skip.addEventListener("click", showAll);

watch("value", show);
show();
