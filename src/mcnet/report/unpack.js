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

// Put the columns back into the data; `packed_data` says what the letters mean. Layouts have none of them as a key.
const restorers = {
  c: (columns) => columns,
  d: ([above, below]) => above.map((value, i) => (value === null || below[i] === null ? null : value - below[i])),
  b: ([there, back]) => [...there, ...[...back].reverse()],
  r: (columns) => columns[0].map((_, i) => columns.map((column) => column[i])),
};

function restored(part, packed) {
  if (part === null || typeof part !== "object") return part;
  if (Array.isArray(part)) return part.map((entry) => restored(entry, packed));
  const [key, ...others] = Object.keys(part);
  if (!others.length && key === "s") return restored(packed.shared[part.s], packed);
  if (!others.length && key in restorers) {
    const value = part[key];
    return restorers[key](Array.isArray(value) ? value.map((i) => packed.columns[i]) : packed.columns[value]);
  }
  return Object.fromEntries(Object.entries(part).map(([name, entry]) => [name, restored(entry, packed)]));
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
  const { data, ...packed } = JSON.parse(await unpacked("data-packed"));
  return restored(data, packed);
}

