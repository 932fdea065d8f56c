"use strict";
const REFRESH_MS = 3000;
const at = (id) => document.getElementById(id);
let state = null, before = null, curveKey = "", chosen = {};

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
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

/* -- pictures, which the service draws: one for a wide screen, one for a phone ------------------------------------ */

const phone = matchMedia("(max-width: 40rem)"), drawn = {};
function draw(id, pictures) {
  drawn[id] = pictures;
  at(id).innerHTML = pictures ? pictures[phone.matches ? 1 : 0] : "";
}
phone.addEventListener("change", () => { for (const [id, pictures] of Object.entries(drawn)) draw(id, pictures); });

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

/* The page of a head is at heads/NAME/, where links to the rest of the service begin two steps up. */
const root = /\/heads\/[^/]+\/$/.test(location.pathname) ? "../../" : "";
for (const link of root ? at("nav").querySelectorAll("a") : []) link.setAttribute("href", root + link.getAttribute("href"));
function showHeads() {
  if (state.heads.length < 2 || at("heads").childElementCount === state.heads.length) return;
  fill("heads", ...state.heads.map((name) => make("a", { href: `${root}heads/${encodeURIComponent(name)}/`, "aria-current": name === state.head ? "page" : null }, name)));
}

function showNothing() {
  at("dot").className = "dot " + (state.refused ? "bad" : "warn");
  at("name").textContent = document.title = state.name;
  at("summary").textContent = state.refused ? `No version serves: ${state.refused.reason}` : "No version yet; mcnet update publishes the first one.";
}

function showSummary() {
  const s = state.served, alarms = (state.monitor && state.monitor.alarms) || 0;
  const failed = state.last_run && state.last_run.outcome === "failed";
  const level = state.refused || failed ? "bad" : alarms || (state.suspects || []).length ? "warn" : "good";
  at("dot").className = "dot " + level;
  const what = s.fields.length ? `${count(s.contexts)} contexts of ${s.fields.join(" × ")}` : "one curve";
  at("name").textContent = state.name;
  document.title = `${state.name}: version ${s.version}`;
  at("summary").textContent = `Version ${s.version} serves (${s.method}, ${what})` + (alarms ? `; ${alarms} ${alarms > 1 ? "alarms" : "alarm"}` : "");
  const notices = [];
  if (state.refused) notices.push(make("p", { class: "notice" }, `${state.current ? "Version " + state.current : "The current version of the registry"} was refused, and version ${s.version} serves on: ${state.refused.reason}`));
  if (state.unreachable) notices.push(make("p", { class: "notice", id: "unreachable" }, `The store cannot be reached; what is served stays in memory: ${state.unreachable}`));
  if (failed) notices.push(make("p", { class: "notice", id: "failed" }, `The last update, ${moment(state.last_run.time)}, failed: ${state.last_run.reason}`));
  if (state.damaged.length) notices.push(make("p", { class: "notice warn" }, `Versions that cannot be read: ${state.damaged.map((v) => v.number).join(", ")}`));
  if (state.held) notices.push(make("p", { class: "notice warn", id: "held" }, `Version ${state.current} is ${state.held}. Updates publish nothing until it is released, or the latest version is promoted.`));
  if (state.journal && state.journal.problem) notices.push(make("p", { class: "notice warn" }, state.journal.problem));
  fill("notices", ...notices);
}

function showMonitor() {
  const monitor = state.monitor;
  const found = ((monitor && monitor.watched_lines) || []).filter((line) => line.alarm).map((line) => make("div", { class: "alarm" },
    make("p", {}, make("strong", {}, line.name), ` since ${line.since}`),
    make("p", { class: "quiet" }, `PCOC ${line.pcoc} (${line.interval}), positives off ${line.excess}, evidence ${line.evidence}`)));
  const more = monitor ? monitor.alarms - found.length : 0;
  if (more > 0) found.push(make("p", { class: "how" }, `${count(more)} more; mcnet monitor lists them all.`));
  if (!found.length && monitor) {
    found.push(make("div", { class: "alarm calm" }, make("p", {}, make("strong", {}, "No alarm")),
      make("p", { class: "quiet" }, `${count(monitor.watched)} ${monitor.watched === 1 ? "thing is" : "things are"} watched, up to ${moment(monitor.last_period)}; a calibrated model ever raises an alarm with a chance of at most ${monitor.alpha}.`)));
  }
  for (const sentence of (monitor && monitor.served) || []) found.push(make("p", { class: "how" }, sentence));
  for (const sentence of state.suspects || []) found.push(make("div", { class: "alarm" }, make("p", {}, make("strong", {}, "Suspect"), ` ${sentence}`)));
  if ((state.following || []).length) found.push(make("div", { class: "alarm calm", id: "following" }, ...state.following.map((line) => make("p", { class: "quiet" }, line))));
  if (!monitor) found.push(make("p", { class: "how" }, "The monitor runs with the update job: mcnet update, or mcnet serve --learn."));
  if (state.last_run) found.push(make("div", { class: "alarm calm" }, make("p", { class: "quiet" }, `Last update ${moment(state.last_run.time)}: ${state.last_run.headline || state.last_run.outcome}`)));
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
  const pictures = (state.journal && state.journal.pictures) || {};
  draw("pcoc-plot", pictures.pcoc);
  if (!pictures.pcoc) fill("pcoc-plot", make("p", { class: "how" }, "No period of the journal has labels yet."));
  draw("feedback-plot", pictures.feedback);
  if (!pictures.feedback) fill("feedback-plot", make("p", { class: "how" }, "No feedback yet."));
  at("feedback-text").textContent = `Labelled rows per period in the journal, positives in orange. ${count(state.feedback.rows)} rows arrived here since the start.`;
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
  draw("curve-plot", found.pictures);
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
  before = state && state.served ? state : null; state = found;
  showHeads(); showMonitor(); showJournal();
  if (state.served) {
    showSummary(); showTiles(); showVersions();
    await showCurves();
  } else showNothing();
  document.documentElement.dataset.ready = "yes";
  document.documentElement.dataset.served = state.served ? state.served.version : "";
}
async function follow() {
  if (!document.hidden || !state) await refresh().catch(trouble);
  setTimeout(follow, REFRESH_MS);
}
follow();
