// What the dashboard keeps in the page's address. Runs behind address.js.

// Filters that restrict nothing are left out, except those that restrict by default.
function keepFilters(names, values) {
  const entries = names.map((name, i) => [name, values[i] || (["pool", "hardware"].includes(name) ? "" : null)]);
  address(Object.fromEntries(entries));
}

// A click anywhere in a row of the list opens its run; the link in it serves keyboards and new windows.
function openRuns(element, trigger) {
  element.addEventListener("click", (event) => {
    const link = event.target.closest("tr")?.querySelector("a[data-run]");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    visit({ run: link.dataset.run }, true);
    window.mdLeft = link.dataset.run; // once it is left
    trigger("click", { run: Number(link.dataset.run) });
  });
}

// Back and Forward of the browser, between the list and runs that were opened from it.
function travel(trigger) {
  window.mdTravel?.abort(); // of a component that was there before
  window.mdTravel = new AbortController();
  const go = () => { if (linkedTab() === "dashboard") trigger("click"); };
  addEventListener("popstate", go, { signal: window.mdTravel.signal });
}

// The field of a day ignores what is not one, without a message.
document.addEventListener("focusout", ({ target }) => {
  const field = target.closest?.("#filter-from, #filter-to");
  if (!field || target.tagName !== "INPUT") return;
  const text = target.value.trim();
  const wrong = text !== "" && !(/^\d{4}-\d{2}-\d{2}$/.test(text) && Date.parse(text));
  target.ariaInvalid = wrong ? "true" : null;
  tellNotTaken(field, wrong && "Not taken: needs a day such as 2026-01-31.");
});

// The run that the address names, if any.
function linkedRun() {
  return new URLSearchParams(location.search).get("run");
}

// The list goes, and the focus with it: a screen reader would be left at the top of the page.
function focusRun() {
  window.scrollTo({ top: 0 });
  focusSoon(["#run-head h2", "#leave-run"]);
}

// From a run that was opened from the list the way back is the browser's: it leaves no step behind.
function leaveRun() {
  window.mdLeft = linkedRun();
  if (history.state?.opened) history.back();
  else address({ run: null });
  focusList();
}

// Only the way back from a run leads to the list: who comes from another tab finds the page where it was.
function focusList() {
  if (!window.mdLeft) return;
  focusSoon([`#run-list a[data-run="${window.mdLeft}"]`, "#run-list .md-scroll"]);
  window.mdLeft = null;
}

function focusTravelled() {
  if (!linkedRun()) return focusList();
  window.mdLeft = linkedRun(); // the next time
  focusRun();
}

// Focuses the first of the elements that is in sight within two seconds, each for its share of them.
function focusSoon(selectors, begun = performance.now()) {
  const late = Math.floor((performance.now() - begun) / (2000 / selectors.length));
  const found = selectors.slice(0, late + 1).map((one) => document.querySelector(one)).find((one) => one?.offsetParent);
  if (found) found.focus({ preventScroll: found.tagName === "H2" });
  else if (late < selectors.length) requestAnimationFrame(() => focusSoon(selectors, begun));
}
