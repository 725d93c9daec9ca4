// Which pool is loaded. Runs once, when the component is there; `element`, `props`, `trigger` and `server` are Gradio's.
// props.value is what was loaded when the page was built. Once the page has followed its address this asks the server, and
// triggers a select if the pool is another one by now, which brings the tabs up to date. From then on it asks now and then,
// and triggers a click once the pool has changed, which also informs the visitor.

const IDLE_MS = 5000, LOADING_MS = 1000;

let known = props.value.card_hash; // the card's hash that the tabs were made for
let opened = false; // whether that has been compared once
let next = 0; // timer of the next look

function show(report) {
  const line = element.querySelector(".md-pool-line");
  const [loaded, news] = line.children;
  if (line.title !== report.status) {
    line.title = report.status;
    loaded.textContent = `${report.status.slice(0, report.status.length - report.news.length).trim()} `;
    news.textContent = report.news;
  }
  line.dataset.pool = report.name;
  line.classList.toggle("md-pool-loading", report.loading);
}

async function look() {
  clearTimeout(next);
  let wait = IDLE_MS;
  if (!document.hidden) {
    try {
      const report = await server.report();
      show(report);
      if (report.loading) wait = LOADING_MS;
      if (report.card_hash !== known) trigger(opened ? "click" : "select");
      known = report.card_hash;
      opened = true;
    } catch {
      // The server is away: look again later.
    }
  }
  next = setTimeout(look, wait);
}

show(props.value);
document.addEventListener("md-restored", look, { once: true });
document.addEventListener("visibilitychange", () => { if (next && !document.hidden) look(); });
