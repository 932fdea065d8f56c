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

