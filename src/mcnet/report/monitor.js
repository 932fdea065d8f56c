(async () => {
  const figures = await figureData();
  if (figures === null) return;
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
