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
