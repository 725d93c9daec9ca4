// Each chart can be saved: as SVG or PNG on white, or as the CSV of what it draws. The charts come and go with
// what is shown, so a chart that has no menu yet is looked for a little after the page has changed.

const LOOK_MS = 400;
const SAVED = { SVG: "svg", PNG: "png", CSV: "csv" };

let looking = null;

function offerCharts() {
  looking = null;
  // For screen readers a chart is one picture with a name, not the marks on its axes; tables have its figures.
  for (const graph of document.querySelectorAll(".md-chart .js-plotly-plot")) {
    graph.role = "img";
    graph.ariaLabel = plain(graph.layout?.title?.text);
  }
  for (const chart of document.querySelectorAll(".md-chart:not(:has(> .md-save))")) {
    if (!chart.querySelector(".js-plotly-plot")) continue;
    const menu = make("details", "md-save", "", chart);
    make("summary", "", "Save", menu).ariaLabel = "Save this chart";
    for (const name of Object.keys(SAVED)) make("button", "", name, menu).type = "button";
  }
}

new MutationObserver(() => { looking ??= setTimeout(offerCharts, LOOK_MS); })
  .observe(document.body, { childList: true, subtree: true });

document.addEventListener("click", ({ target }) => {
  const button = target.closest(".md-save button");
  for (const menu of document.querySelectorAll(".md-save[open]")) {
    if (button || !menu.contains(target)) menu.open = false;
  }
  if (button) saveChart(button.closest(".md-chart").querySelector(".js-plotly-plot"), SAVED[button.textContent]);
});

async function saveChart(graph, format) {
  const name = (plain(graph.layout.title?.text) || "chart").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
  const url = format === "csv" ? blobUrl(csvOf(graph)) : await pictureOf(graph, format);
  Object.assign(document.createElement("a"), { href: url, download: `${name}.${format}` }).click();
  if (format === "csv") setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// Light in dark mode too, for papers. The page colours texts by its style sheet, which a file has not.
const PAPER = "#ffffff", INK = "#16191d";

function pictureOf(graph, format) {
  const font = { ...graph.layout.font, color: INK };
  const data = graph.data.map((trace) => trace.textfont ? { ...trace, textfont: { ...trace.textfont, color: INK } } : trace);
  const { width, height: shown } = graph.getBoundingClientRect();
  // The page names the lines of some charts beside them; a file has to do so itself.
  const named = drawnIn(graph).filter((trace) => trace.type === "scatter");
  const unnamed = !graph.layout.showlegend && named.length > 1 && new Set(named.map((trace) => trace.name)).size === named.length;
  const room = unnamed ? 24 * Math.ceil(named.length / 3) : 0, margin = graph.layout.margin ?? {};
  const below = { orientation: "h", yref: "container", yanchor: "bottom", y: 0.02, x: 0 };
  const legend = unnamed ? { showlegend: true, legend: below, margin: { ...margin, b: (margin.b ?? 60) + room } } : {};
  const layout = { ...graph.layout, ...legend, font, paper_bgcolor: PAPER, width, height: shown + room, autosize: false };
  return Plotly.toImage({ data, layout }, { format, width, height: shown + room, scale: format === "png" ? 2 : 1 });
}

const drawnIn = (graph) => graph._fullData.filter((trace) => trace.visible === true && trace.hoverinfo !== "skip");

const blobUrl = (text) => URL.createObjectURL(new Blob([text], { type: "text/csv" }));

const plain = (text) => new DOMParser().parseFromString(String(text ?? "").replaceAll("<br>", " "), "text/html").body.textContent;

// A line for each thing drawn; of bars with an end of their own and of intervals, both ends. A chart whose axis has a
// remark for its title names it in `meta`, a trace its further columns.
function csvOf(graph) {
  const axis = (letter) => graph.layout.meta?.[letter] || plain(graph.layout[`${letter}axis`]?.title?.text) || letter;
  const more = [...new Set(graph.data.flatMap((trace) => Object.keys(trace.meta?.columns ?? {})))];
  const lines = [["series", axis("x"), axis("y"), "value", "base", "low", "high", ...more]];
  for (const trace of drawnIn(graph)) {
    const series = plain(graph.data[trace.index].name);
    const { x = [], y = [], z, base = [], error_x: error = {} } = trace;
    const columns = graph.data[trace.index].meta?.columns ?? {};
    const reaches = error.visible ? { less: error.arrayminus ?? error.array, more: error.array } : null;
    const add = (i, ...cells) => lines.push([series, ...cells, base[i],
      reaches && x[i] - reaches.less[i], reaches && x[i] + reaches.more[i], ...more.map((name) => columns[name]?.[i])]);
    if (z) z.forEach((row, j) => row.forEach((value, i) => add(-1, x[i], y[j], value)));
    else for (let i = 0; i < Math.max(x.length, y.length); i++) add(i, x[i], y[i], "");
  }
  const used = lines[0].map((_, column) => lines.some((line, row) => row && ![undefined, null, ""].includes(line[column])));
  return lines.map((line) => line.filter((_, column) => used[column]).map(cell).join(",")).join("\r\n") + "\r\n";
}

// No spreadsheet is to take a text for a formula.
function cell(value) {
  if (typeof value === "number") return value;
  const text = plain(value).replace(/^(?=[=+\-@\t\r])/, "'");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
