"use strict";
const REFRESH_MS = 3000;
const at = (id) => document.getElementById(id), root = document.documentElement;

async function ask(path, options) {
  const answer = await fetch(path, { cache: "no-store", ...options });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.detail || answer.statusText);
  return found;
}

/* -- refreshing: the service answers the whole page again, and the parts that have changed are replaced ------------- */

function trouble(error) {
  at("notices").innerHTML = '<p class="notice"></p>';
  at("notices").firstChild.textContent = `The service does not answer: ${error.message}`;
}
async function refresh() {
  const answer = await fetch(location.href, { cache: "no-store" });
  if (!answer.ok) throw new Error((await answer.json()).detail);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of page.querySelectorAll("[data-live]")) {
    if (at(part.id).innerHTML !== part.innerHTML) at(part.id).innerHTML = part.innerHTML;
  }
  document.title = page.title;
  root.dataset.served = page.documentElement.dataset.served;
  await showCurves();
}
async function follow() {
  if (!document.hidden) await refresh().catch(trouble);
  setTimeout(follow, REFRESH_MS);
}

/* -- curves, which the service draws: one for a wide screen, one for a phone ---------------------------------------- */

const phone = matchMedia("(max-width: 40rem)");
let chosen = {}, curveKey = "", pictures = [];
const draw = () => { at("curve-plot").innerHTML = pictures[phone.matches ? 1 : 0] || ""; };
phone.addEventListener("change", draw);

/* A context is one value of every field: with the first one chosen, the others begin at their first value. */
function choose(name, value, fields) {
  for (const other of Object.keys(fields)) chosen[other] = value === "" ? "" : chosen[other] || fields[other][0];
  chosen[name] = value;
  for (const select of at("pick").querySelectorAll("select")) select.value = chosen[select.dataset.field];
}
function picker(name, values, fields) {
  const label = document.createElement("label"), select = document.createElement("select");
  select.dataset.field = name;
  select.append(new Option("largest", ""), ...values.map((value) => new Option(value, value)));
  select.value = chosen[name];
  select.addEventListener("change", () => { choose(name, select.value, fields); showCurves().catch(trouble); });
  label.append(name, select);
  return label;
}
async function showCurves() {
  const key = root.dataset.served + JSON.stringify(chosen);
  if (key === curveKey || !root.dataset.served) return;
  const given = Object.values(chosen).some((value) => value !== "");
  const found = await ask("curves" + (given ? "?" + new URLSearchParams(chosen) : ""));
  if (key !== root.dataset.served + JSON.stringify(chosen)) return showCurves();
  const names = Object.keys(found.fields);
  if ([...at("pick").querySelectorAll("select")].map((select) => select.dataset.field).join() !== names.join()) {
    chosen = Object.fromEntries(names.map((name) => [name, chosen[name] || ""]));
    at("pick").replaceChildren(...names.map((name) => picker(name, found.fields[name], found.fields)));
  }
  at("curve-text").textContent = (given ? "What a score becomes, with its 95 % interval." : "What a score becomes: pooled, and in the largest contexts.") + " The dotted line would leave it as it is.";
  pictures = found.pictures;
  draw();
  curveKey = root.dataset.served + JSON.stringify(chosen);
}

/* -- changes ------------------------------------------------------------------------------------------------------- */

let pending = "";
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-change]");
  if (!button) return;
  pending = button.dataset.change;
  at("confirm-title").textContent = button.dataset.title;
  at("confirm-text").textContent = button.dataset.text;
  at("wrong").hidden = true;
  at("confirm").showModal();
  at(at("token").value ? "note" : "token").focus();
});
at("cancel").addEventListener("click", () => at("confirm").close());
at("confirm-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  at("go").disabled = true;
  try {
    const note = at("note").value ? "?" + new URLSearchParams({ note: at("note").value }) : "";
    await ask(pending + note, { method: "POST", headers: { Authorization: "Bearer " + at("token").value } });
    at("confirm").close();
    at("note").value = "";
  } catch (error) {
    at("wrong").textContent = error.message;
    at("wrong").hidden = false;
  }
  at("go").disabled = false;
  await refresh().catch(trouble);
});

showCurves().catch(trouble).finally(() => { root.dataset.ready = "yes"; setTimeout(follow, REFRESH_MS); });
