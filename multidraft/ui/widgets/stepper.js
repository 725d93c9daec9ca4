// One round, step by step, in a dialog: the guesses appear one by one, the target checks them in one pass, what it would
// have written itself stays, the rest falls, its own token follows. A round is what tokens.step_of makes. All texts become
// text nodes.

const STEP_MS = { guess: 420, check: 1500, accept: 1300, reject: 1500, own: 1300 };
const SLOW = 2.5; // times as long
const BEFORE = 160, LINES = 2; // of the text so far, in characters

const quoted = (text) => `“${visible(text).trim() || "␣"}”`;
const visible = (text) => text.replaceAll("\n", "↵") || "…"; // a part of a character has no text of its own

let stepper; // made when it is first asked for

function makeStepper() {
  const dialog = make("dialog", "md-stepper", "", document.querySelector(".gradio-container"));
  dialog.setAttribute("aria-labelledby", "md-step-title");
  dialog.innerHTML = `
    <header><h2 id="md-step-title"></h2><button type="button" data-do="close" aria-label="Close">✕</button></header>
    <p class="md-step-before" dir="auto"></p>
    <ol class="md-step-places" tabindex="0" aria-label="The draft, and below each guess the target's choice"></ol>
    <p class="md-step-say" role="status"></p>
    <div class="md-step-bar" role="group" aria-label="Steps">
      <button type="button" data-do="play">Play</button>
      <button type="button" data-do="back">Back</button>
      <button type="button" data-do="step" autofocus>Step</button>
      <label><input type="checkbox"> Slow</label>
      <span><button type="button" data-do="previous">← Round</button>
      <button type="button" data-do="next">Round →</button></span>
    </div>`;
  const find = (name) => dialog.querySelector(name);
  const button = (name) => find(`[data-do=${name}]`);
  let rounds = [], index = 0, phases = [], at = 0, timer = null;
  let plays = !matchMedia("(prefers-reduced-motion: reduce)").matches; // as long as nobody goes step by step
  dialog.classList.toggle("md-still", !plays); // Gradio lets no @media rule reach a dialog

  // What happens in a round, in its order, with what is said of it.
  function phasesOf({ drafter, guesses, accepted, choices, own, together }) {
    const n = guesses.length, tokens = accepted + (own === null ? 0 : 1), found = [];
    const who = together ? `All drafters draft, and ${drafter} was first on this path: it` : drafter;
    guesses.forEach((text, i) => found.push(["guess", `${i ? drafter : who} guesses ${quoted(text)}.`]));
    const sampled = choices.slice(0, accepted).some((text, i) => text !== guesses[i]);
    found.push(["check", n === 0
      ? "No drafter in this round: one forward pass of the target, for one token."
      : `One forward pass of the target checks ${n === 1 ? "the guess" : `all ${n} guesses at once`}: ` +
        `below ${n === 1 ? "it" : "each"} is the token that the target itself finds most probable there.`]);
    if (accepted) {
      const these = accepted === n ? (n === 1 ? "It" : `All ${n}`) : accepted === 1 ? "The first" : `The first ${accepted}`;
      found.push(["accept", sampled
        ? `${these} stay: in a sampled run a guess is accepted by chance, the likelier the target finds it.`
        : `${these} ${accepted === 1 ? "is what the target would have written: it stays." :
          "are what the target would have written: they stay."}`]);
    }
    if (accepted < n && own !== null) {
      const wrong = quoted(guesses[accepted]), rest = n - accepted - 1;
      found.push(["reject", `${wrong} is not accepted: it falls` +
        (rest ? `, and so ${rest === 1 ? "does the guess" : `do the ${rest} guesses`} that built on it.` : ".")]);
    }
    if (own !== null) {
      const why = n === 0 ? "The target writes" : accepted < n ? "In its place the same pass gives the target's own" :
        "The same pass gives one token more, the target's own";
      found.push(["own", `${why} ${quoted(own)}. ${tokens === 1 ? "One token" : `${tokens} tokens`} for one pass` +
        (tokens === 1 ? "." : `; without a drafter it would have taken ${tokens} passes.`)]);
    }
    return found;
  }

  function show() {
    const round = rounds[index], { guesses, accepted, choices, siblings, own, kind } = round;
    const done = (name) => phases.findLastIndex(([what], i) => what === name && i < at) >= 0;
    const seen = phases.slice(0, at).filter(([what]) => what === "guess").length;
    find("h2").textContent = `Round ${index + 1} of ${rounds.length}: ${round.drafter ?? "no draft"}`;
    const earlier = rounds.slice(Math.max(0, index - 20), index);
    find(".md-step-before").textContent =
      earlier.map((r) => r.guesses.slice(0, r.accepted).join("") + (r.own ?? "")).join("").slice(-BEFORE).split("\n").slice(-LINES).join("\n");
    const places = find(".md-step-places");
    places.replaceChildren();
    const names = make("li", "md-step-names", "", places);
    names.ariaHidden = "true"; // the list's own label says it
    for (const name of [guesses.length ? "draft" : "", "target"]) make("span", "", name, names);
    for (let i = 0; i < Math.max(guesses.length, own === null ? 0 : accepted + 1); i++) {
      const place = make("li", "", "", places), late = i > accepted;
      const guess = make("span", `md-step-guess md-token ${kind}`, visible(guesses[i] ?? ""), place);
      guess.hidden = i >= guesses.length;
      guess.classList.toggle("md-unseen", i >= seen);
      guess.classList.toggle("md-fallen", i >= accepted && done("reject"));
      const fits = i < accepted, isOwn = i === accepted && own !== null && done("own");
      const text = isOwn ? own : choices[i] ?? (fits ? guesses[i] : i === accepted ? own : null);
      const choice = make("span", `md-step-choice${isOwn ? " md-token md-own" : ""}`, text === null ? "?" : visible(text), place);
      choice.classList.toggle("md-unseen", !done("check"));
      choice.classList.toggle("md-late", late && done("reject"));
      const mark = make("b", "", fits ? "✓" : isOwn ? "+" : i < guesses.length ? "✗" : "", place);
      mark.classList.toggle("md-unseen", !(fits ? done("accept") : i === accepted && (done("reject") || done("own"))));
      for (const other of siblings[i] ?? []) { // last, so that guesses, choices and marks stand in rows
        make("small", `md-step-sibling ${i < seen ? "" : "md-unseen"}`, visible(other), place).title = "Also drafted for this place";
      }
      place.classList.toggle("md-kept", fits && done("accept"));
    }
    find(".md-step-say").textContent = at ? phases[at - 1][1] : round.drafter
      ? `The policy has chosen ${round.drafter}. Step, or play.` : "The policy has chosen to draft nothing. Step, or play.";
    places.children[Math.max(1, Math.min(seen, at > seen ? accepted : seen))]?.scrollIntoView({ block: "nearest", inline: "nearest" });
    button("play").textContent = timer ? "Pause" : at < phases.length ? "Play" : "Again";
    button("back").disabled = at === 0;
    button("step").disabled = at === phases.length;
    button("previous").disabled = index === 0;
    button("next").disabled = index === rounds.length - 1;
    if (dialog.contains(document.activeElement) ? document.activeElement.disabled : true) button("play").focus();
  }

  function go(to) {
    at = Math.max(0, Math.min(phases.length, to));
    if (at === phases.length) stop();
    show();
  }

  function stop() {
    clearTimeout(timer);
    timer = null;
  }

  function play() {
    const pause = at < phases.length ? STEP_MS[phases[at][0]] : 0;
    timer = setTimeout(() => { go(at + 1); if (timer) play(); }, at ? pause * (find("input").checked ? SLOW : 1) : STEP_MS.guess);
  }

  function open(to) {
    stop();
    index = to;
    phases = phasesOf(rounds[index]);
    at = 0;
    if (plays) play();
    show();
  }

  const does = {
    close: () => dialog.close(),
    play: () => {
      plays = !timer;
      if (timer) stop();
      else { at = at === phases.length ? 0 : at; play(); }
      show();
    },
    back: () => { plays = false; stop(); go(at - 1); },
    step: () => { plays = false; stop(); go(at + 1); },
    previous: () => open(index - 1),
    next: () => open(index + 1),
  };
  const keys = { ArrowRight: "step", ArrowLeft: "back", PageDown: "next", PageUp: "previous" };

  dialog.addEventListener("click", ({ target }) => {
    if (target === dialog) dialog.close(); // beside it
    does[target.closest("[data-do]")?.dataset.do]?.();
  });
  dialog.addEventListener("keydown", (event) => {
    const name = keys[event.key];
    if (!name) return;
    event.preventDefault();
    if (!button(name).disabled) does[name]();
  });
  dialog.addEventListener("close", stop);
  return (all, first) => {
    rounds = all.map((r) => ({ drafter: null, guesses: [], accepted: 0, choices: [], siblings: [], own: null, ...r }));
    if (!dialog.open) dialog.showModal();
    open(first);
  };
}

// Open the dialog at the round `first` of all `rounds`, by its index.
function stepThrough(rounds, first) {
  stepper ??= makeStepper();
  stepper(rounds, Math.max(0, Math.min(rounds.length - 1, first)));
}

// Likewise of a box with the rounds that tokens.rounds_html made: at the one that is lit, else at the first with a draft.
function stepThroughText(box) {
  const nodes = [...box.querySelectorAll(".md-round")];
  if (!nodes.length) return;
  const rounds = nodes.map((node) => ({ kind: node.dataset.arm, ...JSON.parse(node.dataset.step) }));
  const lit = nodes.findIndex((node) => node.classList.contains("md-lit"));
  stepThrough(rounds, lit >= 0 ? lit : Math.max(0, rounds.findIndex((r) => r.guesses)));
}

document.addEventListener("click", ({ target }) => {
  const box = target.closest?.(".md-step-open")?.closest(".md-with-steps");
  if (box) stepThroughText(box);
});
