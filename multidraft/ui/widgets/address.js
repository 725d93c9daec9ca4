// The page's address keeps what is shown, so that it can be reloaded, kept as a bookmark, or sent. Parameters that are not
// named in `changes` stay as they are.

let shownQuery = location.search; // what the page shows, whatever the browser's Back has put into the address

function address(changes) {
  const query = changed(changes);
  history.replaceState(history.state, "", query ? `?${query}` : location.pathname);
  shownQuery = location.search;
  // A Space is a frame: the page around it shows the address, and takes it from here.
  if (window.parent !== window) window.parent.postMessage({ queryString: query }, "https://huggingface.co");
}

// The same as a step that the browser's Back takes back; `opened`: one from a list to what it lists.
function visit(changes, opened = false) {
  history.pushState({ ...history.state, opened }, "", location.href);
  address(changes);
}

// A step of the browser's Back or Forward opens its tab and takes the focus there; of the address its own are what Play
// reads, and the dashboard's run. All else stays as it is shown.
function travelled() {
  const tab = linkedTab() ?? "play", query = new URLSearchParams(location.search);
  const own = [...Object.keys(notPlays()), ...(tab === "dashboard" ? ["run"] : [])];
  history.replaceState(history.state, "", shownQuery || location.pathname);
  const kept = Object.fromEntries(own.map((name) => [name, query.get(name)]));
  address({ ...kept, tab: tab === "play" ? firstTab() : tab });
  if (tabs().some((one) => nameOf(one) === tab && one.ariaSelected === "true")) return;
  goToTab(tab);
  tabNamed(tab)?.focus({ preventScroll: true });
}

// The address's query with `changes`.
function changed(changes) {
  const search = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value !== null && value !== undefined && !Array.isArray(value)) search.set(name, value);
    else search.delete(name);
    if (Array.isArray(value)) value.forEach((one) => search.append(name, one));
  }
  return search.toString();
}

const SETTINGS = ["max_new_tokens", "temperature", "top_p", "top_k", "draft_length", "seed"];

// Changes that take out of the address what only Play reads: on other tabs it says nothing, and may be a long prompt.
function notPlays() {
  return Object.fromEntries(["prompt", "with_policy", "with_pool", ...SETTINGS].map((name) => [name, null]));
}

// The tab whose job the address names, if any.
function jobsTab() {
  const query = new URLSearchParams(location.search);
  return ["batch", "race"].find((name) => query.has(name)) ?? null;
}

// The tab that the address names, if any.
function linkedTab() {
  return new URLSearchParams(location.search).get("tab")?.toLowerCase() ?? jobsTab();
}

// Whatever tab is chosen now may be shown.
function opened() {
  document.documentElement.classList.remove("md-opening");
}

// Those that a narrow page has no room for are in a menu.
const TAB = "button[role=tab], .overflow-dropdown button";
const tabs = () => [...document.querySelectorAll(TAB)];
const nameOf = (tab) => tab.textContent.trim().toLowerCase();
const tabNamed = (name) => tabs().find((tab) => nameOf(tab) === name);

// Opens the tab that the address names, unless the visitor was faster and has gone elsewhere. A name that no tab has
// is taken out of the address.
function openTab() {
  if (tabs()[0].ariaSelected === "true") {
    if (linkedTab() && !tabNamed(linkedTab())) address({ tab: null });
    goToTab(linkedTab());
    if (new URLSearchParams(location.search).has("race")) setTimeout(() => document.querySelector("#race-status")?.scrollIntoView(), 300);
  }
  opened();
}

// The address names the tab that is open, from the visitor's first click on.
document.addEventListener("click", ({ target }) => {
  const tab = target.closest?.(TAB);
  if (!tab) return;
  const go = nameOf(tab) === (linkedTab() ?? "play") ? address : visit;
  go(tab === tabs()[0] ? { tab: firstTab() } : { ...notPlays(), tab: nameOf(tab) });
});
addEventListener("popstate", travelled);

function goToTab(name) {
  tabNamed(name)?.click();
}

// Starts a race, as soon as its tab is there.
function startRace(tries = 100) {
  const run = document.querySelector("#race-run");
  if (run) run.click();
  else if (tries) setTimeout(startRace, 50, tries - 1);
}

// What the address has to say so that it opens Play, the first tab: nothing, unless it names a batch or race as well.
function firstTab() {
  return jobsTab() && "play";
}
