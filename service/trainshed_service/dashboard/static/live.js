// Keeps a page current: asks for the page itself again and puts in what has changed of its parts ([data-live]).
// A part that has not changed on the server is left alone, with its focus, selection and open details.

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const every = Number(main.dataset.liveEvery);
const shown = new Map();
for (const part of document.querySelectorAll("[data-live]")) shown.set(part.id, part.outerHTML);
let tag = null, failures = 0, timer = 0, isLoading = false;

function say(text) {
  if (connection.textContent !== text) connection.textContent = text;
}

async function refresh() {
  clearTimeout(timer);
  if (isLoading) return;
  if (document.hidden) return;
  isLoading = true;
  try {
    const headers = { "x-live": "1", ...(tag ? { "if-none-match": tag } : {}) };
    const answer = await fetch(location.href, { headers, cache: "no-store", redirect: "manual" });
    if (answer.status === 401) { location.reload(); return; }
    if (answer.status === 404) { say("This is gone."); return; }
    if (answer.status !== 304) {
      if (!answer.ok) throw new TypeError(`status ${answer.status}`);
      tag = answer.headers.get("etag");
      take(new DOMParser().parseFromString(await answer.text(), "text/html"));
    }
    failures = 0;
    say("");
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    failures += 1;
    if (failures > 1) say("Connection lost. Trying again…");
  } finally {
    isLoading = false;
    timer = setTimeout(refresh, failures ? Math.min(8000, 1000 * failures) : Number(main.dataset.liveEvery) || every);
  }
}

function take(page) {
  document.title = page.title;
  main.dataset.liveEvery = page.getElementById("main").dataset.liveEvery;
  for (const fresh of page.querySelectorAll("[data-live]")) {
    const old = document.getElementById(fresh.id);
    if (!old || shown.get(fresh.id) === fresh.outerHTML) continue;
    if (isBusy(old)) { tag = null; continue; }  // asked for again until it is free
    shown.set(fresh.id, fresh.outerHTML);
    const open = [...old.querySelectorAll("details")].map((each) => each.open);
    const focus = [...old.querySelectorAll("a, button, summary, input")].indexOf(document.activeElement);
    old.replaceWith(fresh);
    [...fresh.querySelectorAll("details")].forEach((each, index) => { each.open = open[index] ?? false; });
    if (focus >= 0) fresh.querySelectorAll("a, button, summary, input")[focus]?.focus({ preventScroll: true });
    tell(fresh);
  }
}

/** Somebody selects text in it, or chooses among its boxes. */
function isBusy(part) {
  const selection = document.getSelection();
  const selects = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  return selects || (part.tagName === "FIELDSET" && part.contains(document.activeElement));
}

function words(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.floor(seconds))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

function ago(seconds) {
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

/** Times become relative to this browser's clock; the exact time stays as the title. */
function tell(root) {
  const now = Date.now() / 1000;
  for (const each of root.querySelectorAll("[data-age]")) {
    each.title ||= new Date(each.dataset.age * 1000).toLocaleString();
    const text = ago(now - each.dataset.age);
    if (each.textContent !== text) each.textContent = text;
  }
  for (const each of root.querySelectorAll("[data-since]")) each.textContent = words(now - each.dataset.since);
}

for (const box of document.querySelectorAll(".filters")) {
  box.addEventListener("change", (event) => { if (event.target.type === "checkbox") box.requestSubmit(); });
}
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
setInterval(() => tell(document), 1000);
tell(document);
timer = setTimeout(refresh, every);
