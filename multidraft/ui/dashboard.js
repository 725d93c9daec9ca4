// What the dashboard keeps in the page's address; written into the handlers of its controls, behind address.js.

// Filters that restrict nothing are left out, but for those that do unless told otherwise.
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
    address({ run: link.dataset.run });
    trigger("click", { run: Number(link.dataset.run) });
  });
}

// The list goes, and the focus with it: a screen reader would be left at the top of the page.
function focusRun() {
  window.scrollTo({ top: 0 });
  focusSoon(["#run-head h2", "#leave-run"]);
}

function leaveRun() {
  const run = new URLSearchParams(location.search).get("run");
  address({ run: null });
  focusSoon([`#run-list a[data-run="${run}"]`, "#run-list .md-scroll"]);
}

// Focuses the first of the elements that is in sight within two seconds, each for its share of them.
function focusSoon(selectors, begun = performance.now()) {
  const late = Math.floor((performance.now() - begun) / (2000 / selectors.length));
  const found = selectors.slice(0, late + 1).map((one) => document.querySelector(one)).find((one) => one?.offsetParent);
  if (found) found.focus({ preventScroll: found.tagName === "H2" });
  else if (late < selectors.length) requestAnimationFrame(() => focusSoon(selectors, begun));
}
