// What the dashboard keeps in the page's address, so that it can be reloaded, kept as a bookmark, or sent.
// Written into the handlers of its controls (dashboard.py); other parameters stay as they are.

function address(changes) {
  const search = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    search.delete(name);
    if (Array.isArray(value)) value.forEach((one) => search.append(name, one));
    else if (value !== null && value !== undefined) search.set(name, value);
  }
  const query = search.toString();
  history.replaceState(history.state, "", query ? `?${query}` : location.pathname);
  // A Space is a frame: the page around it shows the address, and takes it from here.
  if (window.parent !== window) window.parent.postMessage({ queryString: query }, "https://huggingface.co");
}

const tabs = () => [...document.querySelectorAll("button[role=tab]")];
const tabOf = (name) => tabs().find((tab) => tab.textContent.trim().toLowerCase() === name);

// Filters that restrict nothing are left out, but for those that do unless told otherwise.
function keepFilters(names, values) {
  const entries = names.map((name, i) => [name, values[i] || (["pool", "hardware"].includes(name) ? "" : null)]);
  address(Object.fromEntries(entries));
}

// Opens the tab that the address names, and from then on has the address name the tab that is open.
function openTab() {
  const name = new URLSearchParams(location.search).get("tab");
  if (name) tabOf(name)?.click();
  document.addEventListener("click", (event) => {
    const tab = event.target.closest?.("button[role=tab]");
    if (tab) address({ tab: tab === tabs()[0] ? null : tab.textContent.trim().toLowerCase() });
  });
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
