// Lanes played side by side. Runs once, when the component is there; `element`, `props` and `watch` are Gradio's.
// props.value is what lanes.py makes. All texts become text nodes, so nothing in them is ever markup.

const ORDINALS = ["", "1st", "2nd", "3rd", "4th"];
const STATES = {
  waiting: "Waiting for its turn.",
  measuring: "Being measured, alone on the device …",
  measured: "Measured.",
  "left out": "Not measured.",
};
const FIGURES = [
  ["calls", "Target calls", "Forward passes of the target so far, one per round"],
  ["saved", "Calls saved", "Autoregressive decoding needs one call per token"],
  ["rate", "Tokens/s", "Emitted tokens per second of decoding, up to the last round shown"],
  ["speedup", "Decode speed-up", "Tokens per second of the whole answer over those of autoregressive decoding; known at " +
    "the finish, with how far it may be off (95 %). Answers of a few tokens are too short for one"],
  ["request_speedup", "Request speed-up", "Speed-up of the whole request: prefill, routing and the first decision included"],
  ["prefill", "Prefill", "Time before the first round; the replay and its clock begin after it"],
];

const find = (name) => element.querySelector(`.md-race-${name}`);
const play = find("play"), again = find("again"), scrub = find("scrub"), clock = find("clock");
const stage = element.querySelector(".md-race"), track = element.querySelector(".md-lanes");

// Radio buttons of one name exclude each other, whichever stage they are on.
const speeds = [...element.querySelectorAll(".md-race-speed input")];
const group = crypto.randomUUID?.() ?? String(Math.random());
let picked = false; // whether the viewer has chosen a speed: it stays then
for (const input of speeds) {
  input.name = group;
  input.addEventListener("change", () => { picked = true; });
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const FRAME_MS = 30, UNSEEN_MS = 300; // between two looks at the clock: in sight, and while its tab is hidden

let lanes = []; // one object a lane: its data and its nodes
let total = 0; // seconds of the slowest lane
let now = 0; // seconds of the replay
let ready = false, playing = false, before = 0, timer;

function makeLane(data, index) {
  const node = element.querySelector("template").content.firstElementChild.cloneNode(true);
  const part = (name) => node.querySelector(`.md-lane-${name}`);
  const title = node.querySelector("h3"), box = part("text"), text = part("tokens");
  node.ariaLabel = title.title = `Lane ${index + 1}: ${data.title}`;
  title.textContent = `${index + 1}. ${data.title}`;
  box.ariaLabel = `Output of lane ${index + 1}`;
  const rounds = data.rounds.map((round) => makeRound(round, text));
  if (!ready) make("p", "md-lane-state", STATES[data.state] ?? "", text);
  const figures = {};
  for (const [key, label, tip] of FIGURES) {
    const cell = make("div", "", "", part("figures"));
    cell.title = tip;
    make("dt", "", label, cell);
    figures[key] = make("dd", "", "–", cell);
  }
  const steps = data.rounds.map((round) => ({ kind: round.kind, ...round.step }));
  const open = node.querySelector(".md-step-open");
  open.ariaLabel = `${open.textContent}: step through one of lane ${index + 1}`;
  open.disabled = !steps.length;
  open.addEventListener("click", () => { // at the round that is shown, once it has ended at the first with a draft
    const shown = lanes[index].shown - 1, ended = shown === steps.length - 1;
    stepThroughLane(steps, ended ? Math.max(0, steps.findIndex(({ guesses }) => guesses?.length)) : shown);
  });
  text.addEventListener("click", ({ target }) => {
    const round = rounds.indexOf(target.closest(".md-round"));
    if (round >= 0 && getSelection().isCollapsed) stepThroughLane(steps, round);
  });
  track.append(node);
  return { data, node, place: part("place"), time: part("time"), bar: node.querySelector(".md-lane-track span"), box,
    rounds, figures, count: part("count"), tokens: 0, shown: 0 };
}

function stepThroughLane(steps, index) {
  go(false);
  stepThrough(steps, index);
}

function makeRound(round, parent) {
  const node = make("span", "md-round", "", parent);
  node.title = round.about;
  node.hidden = true;
  round.pieces.forEach((piece, i) => {
    if (!piece) return;
    const kind = i < round.accepted ? round.kind : "md-own";
    make("span", `md-token ${kind}${piece.endsWith("\n") ? " md-line" : ""}`, piece, node);
  });
  return node;
}

// Bring a lane to the time `now`; only rounds between the old and the new time are touched.
function showLane(lane, longest) {
  const { data, rounds } = lane;
  const from = lane.shown;
  const due = from < rounds.length && data.rounds[from].end <= now; // asking for the scrolled height lays out the page
  const atEnd = due && lane.box.scrollHeight - lane.box.scrollTop - lane.box.clientHeight < 40;
  while (lane.shown < rounds.length && data.rounds[lane.shown].end <= now) {
    rounds[lane.shown].hidden = false;
    lane.tokens += data.rounds[lane.shown++].pieces.length;
  }
  while (lane.shown > 0 && data.rounds[lane.shown - 1].end > now) {
    rounds[--lane.shown].hidden = true;
    lane.tokens -= data.rounds[lane.shown].pieces.length;
  }
  const done = lane.shown === rounds.length;
  write(lane.time, `${Math.min(now, data.seconds).toFixed(2)} s`);
  if (lane.shown === from && lane.drawn) return false;
  if (atEnd) lane.box.scrollTop = lane.box.scrollHeight; // unless the viewer scrolled up to read
  const rate = lane.shown ? lane.tokens / data.rounds[lane.shown - 1].end : null;
  lane.figures.rate.textContent = rate === null ? "–" : rate < 100 ? rate.toFixed(1) : whole.format(rate);
  for (const key of ["speedup", "request_speedup"]) {
    lane.figures[key].textContent = done && data[key] || "–";
  }
  lane.figures.prefill.textContent = `${(1000 * data.prefill).toFixed(0)} ms`;
  lane.figures.calls.textContent = lane.shown;
  lane.figures.saved.textContent = lane.tokens - lane.shown;
  lane.bar.style.width = `${(100 * lane.tokens) / longest}%`;
  lane.count.textContent = `${lane.tokens} of ${data.tokens} tokens`;
  lane.place.textContent = done ? ORDINALS[data.place] : "";
  lane.node.classList.toggle("md-finished", done);
  lane.node.classList.toggle("md-first", done && data.place === 1);
  lane.drawn = true;
  return done;
}

function show() {
  const longest = Math.max(1, ...lanes.map((lane) => lane.data.tokens));
  for (const lane of ready ? lanes : []) {
    const finished = showLane(lane, longest);
    if (finished && playing) {
      find("news").textContent =
        `${lane.node.getAttribute("aria-label")} is ${ORDINALS[lane.data.place] || "done"}, ${lane.time.textContent}.`;
    }
  }
  if (now >= total) stage.classList.add("md-played");
  const moved = write(clock, `${now.toFixed(2)} s of ${total.toFixed(2)} s`);
  if (!moved && now < total) return;
  scrub.value = now;
  scrub.setAttribute("aria-valuetext", `${now.toFixed(2)} of ${total.toFixed(2)} seconds`);
}

// Whether the text is another one: in slow motion most frames change nothing, and should not paint anything.
function write(node, text) {
  const other = node.textContent !== text;
  if (other) node.textContent = text;
  return other;
}

function go(on) {
  playing = on && ready;
  play.textContent = playing ? "Pause" : "Play";
  clearTimeout(timer);
  if (!playing) return;
  before = performance.now();
  timer = setTimeout(step, FRAME_MS);
}

function step() {
  if (!element.isConnected) return;
  const seen = element.offsetParent !== null, passed = performance.now() - before;
  before += passed;
  timer = setTimeout(step, seen ? FRAME_MS : UNSEEN_MS);
  if (!seen) return; // it waits until it is in sight again
  const speed = Number(speeds.find((input) => input.checked)?.value ?? 1);
  now = Math.min(total, now + (passed / 1000) * speed);
  show();
  if (now >= total) go(false);
}

function load(data) {
  go(false);
  ready = Boolean(data?.ready);
  total = ready ? data.seconds : 0;
  if (data?.speed && !picked) for (const input of speeds) input.checked = Number(input.value) === data.speed;
  now = 0;
  stage.classList.toggle("md-played", !ready);
  track.replaceChildren();
  track.classList.toggle("md-unplaced", ready && !data.lanes.some((lane) => lane.place));
  lanes = data?.lanes?.map(makeLane) ?? [];
  find("result").textContent = (ready && data.result) || "";
  const verdict = find("verdict");
  verdict.textContent = (ready && data.verdict.text) || "";
  verdict.dataset.kind = ready ? data.verdict.kind : "";
  find("news").textContent = "";
  for (const control of [play, again, scrub]) control.disabled = !ready;
  scrub.max = total || 1;
  if (ready && matchMedia("(prefers-reduced-motion: reduce)").matches) now = total; // the end, nothing moves by itself
  show();
  if (ready && now < total) go(true);
}

play.addEventListener("click", () => {
  if (!playing && now >= total) now = 0;
  go(!playing);
  show();
});
again.addEventListener("click", () => {
  now = 0;
  show();
  go(true);
});
scrub.addEventListener("input", () => {
  go(false); // who looks for a moment wants it to stand still
  now = Math.min(total, Number(scrub.value));
  show();
});
watch("value", () => load(props.value));
load(props.value);
