"use strict";
const byId = (id) => document.getElementById(id);

function explain(words) {
  byId("trouble").textContent = words;
  byId("trouble").hidden = false;
}

async function unpacked(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

// Load Plotly and return the figures of the page; null, with an explanation, in a browser that cannot decompress.
async function figureData() {
  if (typeof DecompressionStream === "undefined") {
    explain("The figures need a browser of 2023 or later; the tables above are complete.");
    return null;
  }
  const library = document.createElement("script");
  library.textContent = await unpacked("plotly-packed");
  document.head.append(library);
  return JSON.parse(await unpacked("data-packed"));
}

(async () => {
  const data = await figureData();
  if (data === null) return;

  // On paper a figure has the width of a sheet between its margins, whatever the screen's.
  const paper = { width: 680, ink: "#444" };
  let printing = false;
  const onPaper = () => printing || matchMedia("print").matches;
  // The figures' own colours suit light and dark; only the text follows the page.
  const ink = () => (onPaper() ? paper.ink : getComputedStyle(document.documentElement).getPropertyValue("--quiet").trim());
  const narrow = matchMedia("(max-width: 640px)");
  const options = { displayModeBar: false, responsive: true, scrollZoom: false };
  const drawn = new Map();

  function draw(id, figure) {
    const place = byId(id);
    if (!place) return null;
    const small = narrow.matches && !onPaper();
    const layout = structuredClone(figure.layout);
    layout.font.color = ink();
    if (onPaper()) layout.width = paper.width;
    if (small) {
      layout.font.size = 12;
      layout.margin = { ...layout.margin, l: 44, r: 8 };
      // Ticks at 2 and 5 of each decade would run into one another.
      if (layout.xaxis.dtick === "D2") layout.xaxis.dtick = 1;
    }
    // When the window changes its size, Plotly forgets the height of a figure and takes that of its place.
    place.style.height = `${layout.height}px`;
    drawn.set(id, figure);
    return Plotly.react(place, figure.data, layout, options);
  }

  function redraw() {
    for (const [id, figure] of drawn) draw(id, figure);
  }

  // What is chosen: a method, a field of the forest, a view.
  const selects = { method: byId("method"), field: byId("field"), view: byId("view") };
  const chosen = (name) => (selects[name] ? Number(selects[name].value) : 0);
  const shown = () => data[chosen("method")];

  function showView() {
    const view = shown().views[chosen("view")];
    byId("summary").textContent = view.summary;
    byId("explanation").textContent = view.explanation;
    return Promise.all(Object.entries(view.figures).map(([id, figure]) => draw(id, figure)));
  }

  async function showForest() {
    if (!shown().forests.length) return;
    document.querySelectorAll(".values").forEach((table) => {
      table.hidden = table.dataset.forest !== String(chosen("field"));
    });
    await draw("forest", shown().forests[chosen("field")].figure);
    markScrolling();
  }

  async function showMethod() {
    byId("order").textContent = shown().order;
    await showForest();
    await showView();
  }

  // A table that is wider than the screen says so.
  function markScrolling() {
    document.querySelectorAll(".wide").forEach((table) => {
      const scrolls = table.scrollWidth > table.clientWidth + 1;
      table.classList.toggle("scrolls", scrolls);
      table.previousElementSibling.hidden = !scrolls;
    });
  }

  await showMethod();
  for (const [name, react] of [["method", showMethod], ["field", showForest], ["view", showView]]) {
    if (selects[name]) selects[name].addEventListener("change", react);
  }
  if (shown().forests.length) {
    byId("forest").on("plotly_click", (event) => {
      const { name, values } = shown().forests[chosen("field")];
      const wanted = values[event.points[0].pointIndex];
      const option = [...selects.view.options].find((o) => o.dataset.group === name && o.dataset.label === wanted);
      if (!option) return;
      selects.view.value = option.value;
      showView();
      byId("look").scrollIntoView({ behavior: "smooth" });
    });
  }
  document.querySelectorAll("details").forEach((part) => part.addEventListener("toggle", markScrolling));
  window.addEventListener("resize", markScrolling);
  markScrolling();

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  matchMedia("print").addEventListener("change", redraw);
  narrow.addEventListener("change", redraw);
  for (const [event, begins] of [["beforeprint", true], ["afterprint", false]]) {
    window.addEventListener(event, () => {
      printing = begins;
      redraw();
    });
  }
  document.documentElement.dataset.ready = "yes";
})();
