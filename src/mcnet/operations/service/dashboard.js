"use strict";
const REFRESH_MS = 3000, SVG = "http://www.w3.org/2000/svg";
const at = (id) => document.getElementById(id);
let state = null, before = null, curveKey = "", chosen = {};

function make(tag, attributes = {}, ...children) {
  const element = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) element.setAttribute(name, value);
  for (const child of children) element.append(child);
  return element;
}
const fill = (id, ...children) => at(id).replaceChildren(...children);
const count = (n) => n === null || n === undefined ? "—" : n >= 1e9 ? (n / 1e9).toFixed(1) + " G" : n >= 1e6 ? (n / 1e6).toFixed(1) + " M" : n >= 1e4 ? (n / 1e3).toFixed(0) + " k" : Math.round(n).toLocaleString("en");
const share = (x) => x === 0 ? "0 %" : x < 0.0001 ? "< 0.01 %" : (100 * x).toFixed(x < 0.01 ? 2 : 1) + " %";
const digits = (x) => x === 0 ? "0" : String(Number(x.toPrecision(2)));
const moment = (text) => String(text).replace("T", " ").replace(/(:\d\d):\d\d(\.\d+)?(\+00:00|Z)?$/, "$1").replace("+00:00", "");
function ago(seconds) {
  if (!(seconds >= 0)) return "—";
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= 2 * size) return Math.floor(seconds / size) + " " + unit;
  return Math.floor(seconds) + " s";
}
const latency = (s) => s === null ? "—" : s < 0.001 ? "≤ " + (1e6 * s).toFixed(0) + " µs" : "≤ " + (s < 1 ? digits(1e3 * s) + " ms" : digits(s) + " s");

async function ask(path, options) {
  const answer = await fetch(path, { cache: "no-store", ...options });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.detail || answer.statusText);
  return found;
}

/* -- pictures ---------------------------------------------------------------------------------------------------- */

function ticks(low, high, logarithmic) {
  if (logarithmic) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const part of [1, 2, 5]) { const v = part * 10 ** power; if (v >= low * 0.999 && v <= high * 1.001) found.push(v); }
    return found.length > 7 ? found.filter((v) => /^1/.test(v.toExponential())) : found;
  }
  const step = [1, 2, 5, 10].map((m) => m * 10 ** Math.floor(Math.log10((high - low) / 5 || 1))).find((s) => (high - low) / s <= 6);
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + 1e-9 * step; v += step) found.push(Math.abs(v) < 1e-12 ? 0 : v);
  return found;
}

function frame(id, height) {
  const width = Math.max(at(id).clientWidth, 260);
  const svg = make("svg:svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  fill(id, svg);
  return { svg, width, height, left: 46, right: 10, top: 10, bottom: 26 };
}
function scale(low, high, from, to, logarithmic) {
  const f = logarithmic ? Math.log : (v) => v, a = f(low), b = f(high);
  return (v) => b > a ? from + (to - from) * (f(v) - a) / (b - a) : (from + to) / 2;
}
function label(box, x, y, text, anchor, kind) {
  box.svg.append(make("svg:text", { x, y, "text-anchor": anchor, class: kind }, text));
}
function axes(box, x, y, xs, ys) {
  for (const v of ys) {
    box.svg.append(make("svg:path", { class: "grid", d: `M${box.left} ${y(v).toFixed(1)}H${box.width - box.right}` }));
    label(box, box.left - 6, y(v) + 4, digits(v), "end");
  }
  for (const [v, text] of xs) label(box, x(v), box.height - 8, text, "middle");
}
const path = (points) => points.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");

function drawCurves(lines) {
  const box = frame("curve-plot", 300);
  const all = lines.flatMap((l) => l.probability), scores = lines[0].score;
  const logarithmic = [...lines[0].probability].sort((a, b) => a - b)[Math.floor(scores.length / 2)] < 0.1;
  const low = Math.min(...all, ...lines.flatMap((l) => l.low || [])), high = Math.max(...all, ...lines.flatMap((l) => l.high || []));
  const x = scale(scores[0], scores[scores.length - 1], box.left, box.width - box.right, logarithmic);
  const y = scale(low, high, box.height - box.bottom, box.top, logarithmic);
  const xs = ticks(scores[0], scores[scores.length - 1], logarithmic);
  axes(box, x, y, xs.map((v) => [v, digits(v)]), ticks(low, high, logarithmic));
  const first = Math.max(low, scores[0]), last = Math.min(high, scores[scores.length - 1]);
  if (first < last) box.svg.append(make("svg:path", { class: "ideal", d: path([[x(first), y(first)], [x(last), y(last)]]) }));
  lines.forEach((line, place) => {
    if (line.low) {
      const there = line.score.map((s, i) => [x(s), y(line.high[i])]), back = line.score.map((s, i) => [x(s), y(line.low[i])]).reverse();
      box.svg.append(make("svg:path", { class: `band m${place % 7 + 1}`, d: path([...there, ...back]) + "Z" }));
    }
    const d = path(line.score.map((s, i) => [x(s), y(line.probability[i])]));
    box.svg.append(make("svg:path", { class: `line m${place % 7 + 1}${place ? "" : " main"}`, d }, make("svg:title", {}, line.label)));
  });
  box.svg.setAttribute("aria-label", "Curves from score to probability: " + lines.map((l) => l.label).join(", "));
  fill("curve-legend", ...lines.map((l, place) => make("li", { class: `m${place % 7 + 1}` }, l.label)));
}

function empty(id, height, text) {
  const box = frame(id, height);
  label(box, box.width / 2, height / 2, text, "middle", "empty");
}

function periodTicks(box, names) {
  const room = Math.max(Math.floor((box.width - box.left) / 92), 2), step = Math.ceil(names.length / room);
  return names.map((name, i) => [i, moment(name)]).filter(([i]) => i % step === 0)
    .map(([i, text]) => [i, text.length > 10 && names.length > 1 && names[0].slice(0, 10) === names[names.length - 1].slice(0, 10) ? text.slice(11) : text.replace(/^\d{4}-/, "")]);
}

function drawPcoc(periods) {
  const known = periods.filter((p) => p.pcoc);
  if (!known.length) return empty("pcoc-plot", 300, "No period of the journal has labels yet.");
  const box = frame("pcoc-plot", 300);
  const reach = Math.min(Math.max(1.1, ...known.flatMap((p) => [p.pcoc, 1 / p.pcoc, Math.min(p.high || 1, 1.5), Math.min(1 / (p.low || 1), 1.5), p.raw || 1, 1 / (p.raw || 1)])) * 1.03, 10);
  const pad = (box.width - box.left - box.right) / (2 * periods.length);
  const x = scale(0, Math.max(periods.length - 1, 1), box.left + pad, box.width - box.right - pad);
  const y = scale(1 / reach, reach, box.height - box.bottom, box.top, true), inside = (v) => Math.min(Math.max(v, 1 / reach), reach);
  const steps = reach < 1.15 ? [0.9, 0.95, 1, 1.05, 1.1] : reach < 1.6 ? [0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4] : [0.1, 0.2, 0.5, 1, 2, 5, 10];
  axes(box, x, y, periodTicks(box, periods.map((p) => p.period)), steps.filter((v) => v >= 1 / reach && v <= reach));
  box.svg.append(make("svg:path", { class: "ideal", d: `M${box.left} ${y(1)}H${box.width - box.right}` }));
  periods.forEach((p, i) => {
    if (p.raw) box.svg.append(make("svg:circle", { class: "point m2", cx: x(i), cy: y(inside(p.raw)), r: 2.6, opacity: 0.75 }));
    if (!p.pcoc) return;
    const kind = p.version ? "m1" : "m3", who = p.version ? `version ${p.version}` : "not served then";
    if (p.low && p.high) box.svg.append(make("svg:path", { class: `whisker ${kind}`, d: `M${x(i)} ${y(inside(p.low))}V${y(inside(p.high))}` }));
    box.svg.append(make("svg:circle", { class: `point ${kind}`, cx: x(i), cy: y(inside(p.pcoc)), r: 4 }, make("svg:title", {}, `${moment(p.period)}, ${who}: ${p.pcoc.toFixed(3)} (${(p.low || 0).toFixed(3)} … ${p.high ? p.high.toFixed(3) : "∞"})`)));
  });
  box.svg.setAttribute("aria-label", "PCOC of the last periods");
  const served = known.some((p) => p.version), other = known.some((p) => !p.version);
  fill("pcoc-legend", ...(served ? [make("li", { class: "m1" }, "what served then")] : []),
    ...(other ? [make("li", { class: "m3" }, "the version served now")] : []), make("li", { class: "m2" }, "raw score"));
}

function drawFeedback(periods) {
  if (!periods.length) return empty("feedback-plot", 190, "No feedback yet.");
  const box = frame("feedback-plot", 190), most = Math.max(...periods.map((p) => p.rows));
  const slot = (box.width - box.left - box.right) / Math.max(periods.length, 6), bar = Math.max(slot * 0.68, 2);
  const x = (i) => box.left + slot * (i + 0.5), y = scale(0, most, box.height - box.bottom, box.top);
  axes(box, x, y, periodTicks(box, periods.map((p) => p.period)), []);
  for (const v of ticks(0, most, false)) {
    box.svg.append(make("svg:path", { class: "grid", d: `M${box.left} ${y(v).toFixed(1)}H${box.width - box.right}` }));
    label(box, box.left - 6, y(v) + 4, count(v), "end");
  }
  periods.forEach((p, i) => {
    const bars = [["bar", p.rows], ["positives", p.positives]];
    for (const [kind, value] of bars) box.svg.append(make("svg:rect", { class: kind, x: x(i) - bar / 2, width: bar, y: y(value), height: Math.max(y(0) - y(value), 0), rx: 2 },
      make("svg:title", {}, `${moment(p.period)}: ${count(p.rows)} rows, ${count(p.positives)} positives, ${p.sources} sources`)));
  });
  box.svg.setAttribute("aria-label", "Rows of feedback per period");
}

/* -- the parts of the page --------------------------------------------------------------------------------------- */

function showTiles() {
  const t = state.traffic, elapsed = before ? state.time - before.time : 0;
  const rate = elapsed > 0 ? Math.max(t.predictions - before.traffic.predictions, 0) / elapsed : null;
  const added = ago(state.time - Date.parse(state.served.added) / 1000);
  const tiles = [
    ["Version", state.served.version, `added ${added} ago`],
    ["Predictions", count(t.predictions), rate === null ? "rows" : `${rate < 10 ? rate.toFixed(1) : count(rate)} rows/s now`],
    ["Latency, 99 %", latency(t.p99_seconds), `median ${latency(t.median_seconds)}`],
    ["Unseen values", t.predictions ? share(t.unseen_rows / t.predictions) : "—", `${count(t.unseen_rows)} rows`],
    ["Errors", count(t.server_errors), `${count(t.client_errors)} refused requests`],
    ["Workers", state.workers.length, new Set(state.workers).size > 1 ? "serve different versions" : "serve one version"],
  ];
  fill("tiles", ...tiles.map(([name, value, more]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value), make("small", {}, more)))));
}

function standing() { return ((state.monitor && state.monitor.table) || []).filter((line) => line.alarm); }

function showSummary() {
  const s = state.served, alarms = (state.monitor && state.monitor.alarms) || 0;
  const failed = state.last_run && state.last_run.outcome === "failed";
  const level = state.refused || failed ? "bad" : alarms ? "warn" : "good";
  at("dot").className = "dot " + level;
  const what = s.fields.length ? `${count(s.contexts)} contexts of ${s.fields.join(" × ")}` : "one curve";
  at("name").textContent = state.name;
  document.title = `${state.name}: version ${s.version}`;
  at("summary").textContent = `Version ${s.version} serves (${s.method}, ${what})` + (alarms ? `; ${alarms} ${alarms > 1 ? "alarms" : "alarm"}` : "");
  const notices = [];
  if (state.refused) notices.push(make("p", { class: "notice" }, `${state.current ? "Version " + state.current : "The current version of the registry"} was refused, and version ${s.version} serves on: ${state.refused.reason}`));
  if (failed) notices.push(make("p", { class: "notice", id: "failed" }, `The last update, ${moment(state.last_run.time)}, failed: ${state.last_run.reason}`));
  if (state.damaged.length) notices.push(make("p", { class: "notice warn" }, `Versions that cannot be read: ${state.damaged.map((v) => v.number).join(", ")}`));
  if (state.held) notices.push(make("p", { class: "notice warn", id: "held" }, `Version ${state.current} is ${state.held}. Updates publish nothing until it is released, or the latest version is promoted.`));
  if (state.journal && state.journal.problem) notices.push(make("p", { class: "notice warn" }, state.journal.problem));
  fill("notices", ...notices);
}

function showMonitor() {
  const found = standing().map((line) => make("div", { class: "alarm" },
    make("p", {}, make("strong", {}, line.what === "level" ? "All rows" : line.what === "slope" ? "Slope" : line.what), ` since ${moment(line.since)}`),
    make("p", { class: "quiet" }, `PCOC ${Number(line.pcoc).toFixed(3)} (${Number(line.pcoc_low).toFixed(3)} … ${Number(line.pcoc_high).toFixed(3)}), ${count(Math.abs(line.excess))} positives ${line.excess > 0 ? "too many" : "too few"} predicted`)));
  const more = state.monitor ? state.monitor.alarms - found.length : 0;
  if (more > 0) found.push(make("p", { class: "how" }, `${count(more)} more; mcnet monitor lists them all.`));
  if (!found.length && state.monitor) {
    const watched = state.monitor.watched;
    found.push(make("div", { class: "alarm calm" }, make("p", {}, make("strong", {}, "No alarm")),
      make("p", { class: "quiet" }, `${count(watched)} ${watched === 1 ? "thing is" : "things are"} watched, up to ${moment(state.monitor.last_period)}; a calibrated model ever raises an alarm with a chance of at most ${state.monitor.alpha}.`)));
  }
  if (!state.monitor) found.push(make("p", { class: "how" }, "The monitor runs with the update job: mcnet update, or mcnet serve --learn."));
  if (state.last_run) found.push(make("div", { class: "alarm calm" }, make("p", { class: "quiet" }, `Last update ${moment(state.last_run.time)}: ${state.last_run.outcome}${state.last_run.reason ? "; " + state.last_run.reason : ""}`)));
  fill("alarms", ...found);
}

function happened(e) {
  if (e.event === "rolled back") return `Rolled back from version ${e.was} to version ${e.version}`;
  if (e.version === null || e.version === undefined) return e.event[0].toUpperCase() + e.event.slice(1);
  return `Version ${e.version} ${e.event}`;
}

function showVersions() {
  at("change-text").textContent = state.may_change ? "" : "The service was started without a token, so nothing can be changed here.";
  at("rollback").disabled = at("release").disabled = !state.may_change;
  at("release").hidden = !state.held;
  fill("version-rows", ...state.versions.map((v) => {
    const current = v.version === state.served.version;
    const button = make("button", { type: "button", "data-version": v.version, "aria-label": `Promote version ${v.version}` }, "Promote");
    button.disabled = !state.may_change;
    const held = v.version === state.versions[0].version ? "" : " It is not the latest, so it is held: updates publish nothing until it is released.";
    button.addEventListener("click", () => confirmChange(`Serve version ${v.version}?`, `Every worker changes from version ${state.served.version} to ${v.version}.${held}`, `versions/${v.version}/promote`));
    return make("tr", { class: current ? "chosen" : null },
      make("th", { scope: "row" }, v.version, ...(current ? [make("span", { class: "mark" }, "serves")] : [])),
      make("td", { class: "text when" }, moment(v.added)), make("td", { class: "text method" }, v.method), make("td", { class: "rows" }, count(v.rows)),
      make("td", { class: "text note-cell" }, make("span", {}, v.note)), make("td", { class: "act" }, ...(current ? [] : [button])));
  }));
  fill("events", ...state.events.map((e) => make("li", {}, make("time", {}, moment(e.time)),
    make("span", {}, [happened(e), e.note, e.reason].filter(Boolean).join(": ")))));
}

function showJournal() {
  const periods = (state.journal && state.journal.periods) || [];
  drawPcoc(periods);
  drawFeedback(periods);
  at("feedback-text").textContent = state.journal
    ? `Labelled rows per period in the journal, positives in orange. ${count(state.feedback.rows)} rows arrived here since the start.`
    : "The service was started without a journal (--journal).";
}

/* A context is one value of every field: with the first one chosen, the others begin at their first value. */
function choose(name, value, fields) {
  for (const other of Object.keys(fields)) chosen[other] = value === "" ? "" : chosen[other] || fields[other][0];
  chosen[name] = value;
  for (const select of at("pick").querySelectorAll("select")) select.value = chosen[select.dataset.field];
}

async function showCurves() {
  const key = state.served.version + JSON.stringify(chosen);
  if (key === curveKey) return;
  const given = Object.values(chosen).some((v) => v !== "");
  const query = given ? "?" + new URLSearchParams(chosen) : "";
  const found = await ask("curves" + query);
  if (key !== state.served.version + JSON.stringify(chosen)) return showCurves();
  const names = Object.keys(found.fields);
  if ([...at("pick").querySelectorAll("select")].map((s) => s.dataset.field).join() !== names.join()) {
    chosen = Object.fromEntries(names.map((name) => [name, chosen[name] || ""]));
    fill("pick", ...names.map((name) => {
      const select = make("select", { "data-field": name }, make("option", { value: "" }, "largest"), ...found.fields[name].map((v) => make("option", { value: v }, v)));
      select.value = chosen[name];
      select.addEventListener("change", () => { choose(name, select.value, found.fields); showCurves().catch(trouble); });
      return make("label", {}, name, select);
    }));
  }
  at("curve-text").textContent = (given ? "What a score becomes, with its 95 % interval." : "What a score becomes: pooled, and in the largest contexts.") + " The dotted line would leave it as it is.";
  window.lines = found.lines;
  drawCurves(found.lines);
  curveKey = state.served.version + JSON.stringify(chosen);
}

/* -- changes ----------------------------------------------------------------------------------------------------- */

let pending = "";
function confirmChange(title, text, target) {
  pending = target;
  at("confirm-title").textContent = title;
  at("confirm-text").textContent = text;
  at("wrong").hidden = true;
  at("confirm").showModal();
  at(at("token").value ? "note" : "token").focus();
}
at("cancel").addEventListener("click", () => at("confirm").close());
at("rollback").addEventListener("click", () => confirmChange("Roll back?", `The version that was current before ${state.current} serves again, and is held: updates publish nothing until it is released.`, "rollback"));
at("release").addEventListener("click", () => confirmChange("Release?", `Version ${state.current} stays until the next update publishes another one.`, "release"));
at("confirm-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  at("go").disabled = true;
  try {
    const note = at("note").value ? "?" + new URLSearchParams({ note: at("note").value }) : "";
    await ask(pending + note, { method: "POST", headers: { Authorization: "Bearer " + at("token").value } });
    at("confirm").close();
    at("note").value = "";
    await refresh();
  } catch (error) {
    at("wrong").textContent = error.message;
    at("wrong").hidden = false;
  }
  at("go").disabled = false;
});

/* -- refreshing -------------------------------------------------------------------------------------------------- */

function trouble(error) {
  at("dot").className = "dot bad";
  fill("notices", make("p", { class: "notice" }, `The service does not answer: ${error.message}`));
}
async function refresh() {
  const found = await ask("status");
  before = state; state = found;
  showSummary(); showTiles(); showMonitor(); showVersions(); showJournal();
  await showCurves();
  document.documentElement.dataset.ready = "yes";
  document.documentElement.dataset.served = state.served.version;
}
let resizing = 0;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => { if (state) { showJournal(); if (window.lines) drawCurves(window.lines); } }, 100); });
async function follow() {
  if (!document.hidden || !state) await refresh().catch(trouble);
  setTimeout(follow, REFRESH_MS);
}
follow();
