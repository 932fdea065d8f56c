"use strict";
(async () => {
  const byId = (id) => document.getElementById(id);

  async function unpacked(id) {
    const bytes = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  if (typeof DecompressionStream === "undefined") {
    byId("trouble").textContent = "The figures need a browser of 2023 or later; the tables above are complete.";
    byId("trouble").hidden = false;
    return;
  }
  const library = document.createElement("script");
  library.textContent = await unpacked("plotly-packed");
  document.head.append(library);
  const figures = JSON.parse(await unpacked("data-packed"));
  const ink = () => getComputedStyle(document.documentElement).getPropertyValue("--quiet").trim();

  function draw() {
    return Promise.all(
      figures.map((figure, place) => {
        const layout = structuredClone(figure.layout);
        layout.font.color = ink();
        byId(`figure-${place}`).style.height = `${layout.height}px`;
        return Plotly.react(byId(`figure-${place}`), figure.data, layout, { displayModeBar: false, responsive: true });
      }),
    );
  }

  await draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  document.documentElement.dataset.ready = "yes";
})();
