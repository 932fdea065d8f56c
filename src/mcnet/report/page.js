"use strict";
(async () => {
  const byId = (id) => document.getElementById(id);

  async function unpacked(id) {
    const bytes = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  function explain(words) {
    byId("trouble").textContent = words;
    byId("trouble").hidden = false;
  }

  if (typeof DecompressionStream === "undefined") {
    explain("The figures need a browser of 2023 or later; the tables above are complete.");
    return;
  }
  const library = document.createElement("script");
  library.textContent = await unpacked("plotly-packed");
  document.head.append(library);
  const data = JSON.parse(await unpacked("data-packed"));

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

  function show(number) {
    const view = data.views[number];
    byId("summary").textContent = view.summary;
    return Promise.all(Object.entries(view.figures).map(([id, figure]) => draw(id, figure)));
  }

  async function showField(number) {
    document.querySelectorAll(".values").forEach((table) => {
      table.hidden = table.dataset.forest !== String(number);
    });
    await draw("forest", data.forests[number].figure);
  }

  const view = byId("view");
  const field = byId("field");
  if (data.forests.length) {
    await showField(0);
    if (field) field.addEventListener("change", () => showField(Number(field.value)));
    byId("forest").on("plotly_click", (event) => {
      const { name, values } = data.forests[field ? Number(field.value) : 0];
      const wanted = values[event.points[0].pointIndex];
      const option = [...view.options].find((o) => o.dataset.group === name && o.dataset.label === wanted);
      if (!option) return;
      view.value = option.value;
      show(Number(option.value));
      byId("look").scrollIntoView({ behavior: "smooth" });
    });
  }
  await show(0);
  if (view) view.addEventListener("change", () => show(Number(view.value)));

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
