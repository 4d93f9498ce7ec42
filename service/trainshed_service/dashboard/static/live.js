// Keeps a page current and puts in what has changed of its parts ([data-live]): from the page's own stream of events
// (main[data-live-stream]), or by asking for the page itself again (main[data-live-every]).
// A part that has not changed on the server is left alone, with its focus, selection, marks and open details.

import { follow } from "./stream.js";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const every = Number(main.dataset.liveEvery);
const HIDDEN_FOR = 20000;  // a browser opens six connections to a server: pages that nobody sees give theirs back
const shown = new Map();
for (const part of document.querySelectorAll("[data-live]")) shown.set(part.id, part.outerHTML);
let tag = null, failures = 0, timer = 0, isLoading = false;
let stream = null, waiting = null, hiding = 0;

function say(text) {
  if (connection.textContent !== text) connection.textContent = text;
}

function listen() {
  clearTimeout(hiding);
  if (stream && !stream.signal.aborted) return;
  stream = new AbortController();
  const { signal } = stream;
  follow(location.href, {
    signal,
    lastId: tag,
    onEvents(events) {
      for (const event of events) {
        if (event.type === "gone") { location.reload(); return; }
        if (event.type !== "page") continue;
        tag = event.id;
        waiting = JSON.parse(event.data).html;
      }
      put();
    },
    onState(state, detail) {
      if (signal.aborted) return;
      if (state === "unauthorized") location.reload();
      else if (state === "refused") say(detail || "This is gone.");
      else say(state === "reconnecting" ? "The service does not answer. Trying again…" : "");
    },
  });
}

/** Puts the newest page in; again a little later where somebody is busy with a part of it. */
function put() {
  if (waiting === null) return;
  const isDone = take(new DOMParser().parseFromString(waiting, "text/html"));
  if (isDone) waiting = null;
  else { clearTimeout(timer); timer = setTimeout(put, 1000); }
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
      if (!take(new DOMParser().parseFromString(await answer.text(), "text/html"))) tag = null;  // asked for again
    }
    failures = 0;
    say("");
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    failures += 1;
    if (failures > 1) say("The service does not answer. Trying again…");
  } finally {
    isLoading = false;
    timer = setTimeout(refresh, failures ? Math.min(8000, 1000 * failures) : Number(main.dataset.liveEvery) || every);
  }
}

/** Whether all that changed could be put in. */
function take(page) {
  let isDone = true;
  document.title = page.title;
  if (every) main.dataset.liveEvery = page.getElementById("main").dataset.liveEvery;
  for (const fresh of page.querySelectorAll("[data-live]")) {
    const old = document.getElementById(fresh.id);
    if (!old || shown.get(fresh.id) === fresh.outerHTML) continue;
    if (isBusy(old)) { isDone = false; continue; }
    shown.set(fresh.id, fresh.outerHTML);
    const open = [...old.querySelectorAll("details")].map((each) => each.open);
    const focus = [...old.querySelectorAll("a, button, summary, input")].indexOf(document.activeElement);
    const marked = new Set([...old.querySelectorAll("input[data-keep]:checked")].map((each) => each.value));
    old.replaceWith(fresh);
    for (const each of fresh.querySelectorAll("input[data-keep]")) each.checked = marked.has(each.value);
    [...fresh.querySelectorAll("details")].forEach((each, index) => { each.open = open[index] ?? false; });
    if (focus >= 0) fresh.querySelectorAll("a, button, summary, input")[focus]?.focus({ preventScroll: true });
    tell(fresh);
  }
  document.dispatchEvent(new Event("trainshed:page"));
  return isDone;
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
  if (seconds <= -60) return `in ${words(-seconds)}`;
  if (seconds < -5) return "in a moment";  // clocks differ a little
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
document.addEventListener("visibilitychange", () => {
  if (!("liveStream" in main.dataset)) { if (!document.hidden) refresh(); return; }
  if (document.hidden) hiding = setTimeout(() => stream.abort(), HIDDEN_FOR);
  else listen();
});
setInterval(() => tell(document), 1000);
tell(document);
if ("liveStream" in main.dataset) listen();
else if (every) timer = setTimeout(refresh, every);
