// The log of a job: what is there by windows of lines, what comes by stream.js, each line once. Only lines that are or
// were in sight are in memory.

import { Lines, Matches } from "./lines.js";
import { Pane } from "./pane.js";
import { follow } from "./stream.js";
import { nodes, render } from "./terminal.js";

const TYPING = 250, HIDDEN_FOR = 20000, RETRY = 1000;
const LINK = /^#line=(algo-\d+-\d+:\d+)$/;

const placeOf = (line) => `${line.stream.slice(line.stream.lastIndexOf("/") + 1)}:${line.position + 1}`;
const many = (count) => count.toLocaleString("en");

class Log {
  constructor(root) {
    this.root = root;
    this.url = root.dataset.log;
    this.hosts = [];
    this.counts = {};
    this.first = null;  // where the range ends that was there at the beginning
    this.cursor = null;
    this.isFollowing = true;
    this.wraps = false;
    this.panes = [];
    this.state = "connecting";
    this.notice = "";
    this.target = LINK.exec(location.hash)?.[1] || null;
    this.errorsFrom = 0;
    this.parts = {};
    for (const name of ["follow", "filter", "regex", "around", "hosts", "error", "wrap", "times", "state", "panes", "download", "more"]) {
      this.parts[name] = root.querySelector(`[data-${name}]`);
    }
    const { parts } = this;
    parts.follow.addEventListener("click", () => this.setFollowing(!this.isFollowing));
    parts.filter.addEventListener("input", () => { clearTimeout(this.typing); this.typing = setTimeout(() => this.arrange(), TYPING); });
    for (const each of [parts.regex, parts.around, parts.hosts]) each.addEventListener("change", () => this.arrange());
    parts.error.addEventListener("click", () => this.toError());
    parts.times.addEventListener("change", () => this.redraw());
    parts.wrap.addEventListener("change", () => { this.wraps = parts.wrap.checked; root.classList.toggle("wraps", this.wraps); this.redraw(); });
    parts.more.addEventListener("click", () => parts.more.setAttribute("aria-expanded", String(parts.more.getAttribute("aria-expanded") !== "true")));
    window.addEventListener("hashchange", () => { this.target = LINK.exec(location.hash)?.[1] || null; this.toTarget(); });
    document.addEventListener("visibilitychange", () => this.seen());
    if (this.target) this.setFollowing(false);
    this.begin();
  }

  /** What is there now, then what comes. */
  async begin() {
    this.setState("connecting");
    try {
      const query = this.target ? `limit=1&at=${encodeURIComponent(this.target)}` : "limit=0";
      const answer = await fetch(`${this.url}/window?${query}`, { cache: "no-store" });
      if (answer.status === 401) { this.setState("unauthorized"); return; }
      if (answer.status < 500 && !answer.ok) { this.setState("refused", (await answer.json()).message); return; }
      if (!answer.ok) throw new TypeError(`status ${answer.status}`);
      const found = await answer.json();
      this.cursor = this.first = found.to;
      this.counts = found.counts;
      this.setHosts(Object.keys(found.counts));
      this.arrange();
      if (found.at !== null) this.show(found.at);
      this.listen();
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      this.setState("reconnecting");
      setTimeout(() => this.begin(), RETRY);
    }
  }

  listen() {
    this.stream = new AbortController();
    const { signal } = this.stream;
    follow(`${this.url}?batch=true`, {
      signal,
      lastId: this.cursor,
      onEvents: (events) => this.take(events),
      onState: (state, detail) => { if (!signal.aborted) this.setState(state, detail); },
    });
  }

  /** Pages that nobody sees give their connection back; they go on behind the last line that they have. */
  seen() {
    clearTimeout(this.hiding);
    if (!this.stream || this.state === "ended") return;
    if (document.hidden) this.hiding = setTimeout(() => this.stream.abort(), HIDDEN_FOR);
    else if (this.stream.signal.aborted) this.listen();
  }

  take(events) {
    for (const event of events) {
      const data = JSON.parse(event.data);
      if (event.type === "silence") { this.notice = data.seconds ? data.message : ""; continue; }
      if (event.type !== "lines" || data.from !== this.cursor) continue;  // what is here already does not come twice
      const fresh = {};
      for (const line of data.lines) fresh[line.host] = (fresh[line.host] || 0) + 1;
      for (const host of Object.keys(fresh)) this.counts[host] = (this.counts[host] || 0) + fresh[host];
      this.cursor = data.to;
      const isNew = Object.keys(fresh).some((host) => !this.hosts.includes(host));
      if (isNew) this.setHosts([...new Set([...this.hosts, ...Object.keys(fresh)])]);
      if (isNew && this.parts.hosts.value === "apart") { this.arrange(); continue; }
      for (const pane of this.panes) pane.view.add(data, fresh);
    }
    for (const pane of this.panes) pane.ask();
    this.say();
  }

  setHosts(hosts) {
    this.hosts = hosts.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const { hosts: select } = this.parts, value = select.value, fixed = [...select.options].slice(0, 2);
    select.replaceChildren(...fixed, ...this.hosts.map((each) => new Option(`only ${each}`, each)));
    select.value = value;
    this.redraw();  // with a second host each line says whose it is
  }

  /** The panes for the hosts and the filter that are chosen. */
  arrange() {
    const choice = this.parts.hosts.value;
    for (const pane of this.panes) { pane.close(); pane.view.stop(); }
    const isOne = this.hosts.includes(choice), isApart = choice === "apart" && this.hosts.length > 0;
    this.isMerged = choice === "together";
    const groups = isApart ? this.hosts.map((host) => [host]) : [isOne ? [choice] : null];
    this.panes = groups.map((hosts) => new Pane(isApart ? hosts[0] : "", this.view(hosts), this));
    this.parts.panes.replaceChildren(...this.panes.map((pane) => pane.node));
    for (const pane of this.panes) { pane.view.begin(() => { pane.ask(); this.say(); }, () => { pane.redraw(); this.say(); }); pane.ask(); }
    this.parts.download.href = `${this.url}?format=text${isOne ? `&host=${choice}` : ""}`;
    this.say();
  }

  view(hosts) {
    const text = this.parts.filter.value;
    if (!text) return new AllView(this, hosts);
    return new FoundView(this, hosts, { [this.parts.regex.checked ? "regex" : "text"]: text, context: this.parts.around.value });
  }

  countOf(hosts, counts = this.counts) {
    return (hosts || Object.keys(counts)).reduce((sum, host) => sum + (counts[host] || 0), 0);
  }

  row(line, className = "") {
    const node = document.createElement("div");
    node.className = `row ${className}`;
    if (line === null) { node.isWaiting = true; node.append(span("waiting", "…")); return node; }
    const place = placeOf(line);
    if (place === this.target) node.classList.add("target");
    const number = Object.assign(document.createElement("a"), { className: "n", href: `#line=${place}`, textContent: line.position + 1, tabIndex: -1, title: "Link to this line" });
    node.append(number);
    if (this.parts.times.checked) node.append(span("ms", new Date(line.timestamp).toISOString().slice(11, 23)));
    if (this.isMerged && this.hosts.length > 1) node.append(span(`host h${this.hosts.indexOf(line.host) % 6}`, line.host));
    const text = span("text", "");
    text.append(...nodes(render(line.text)));
    node.append(text);
    return node;
  }

  lineHeight() {
    this.height ||= parseFloat(getComputedStyle(this.root).getPropertyValue("--line")) || 18;
    return this.height;
  }

  redraw() {
    for (const pane of this.panes) pane.redraw();
  }

  setFollowing(follows) {
    if (this.isFollowing === follows) return;
    this.isFollowing = follows;
    this.parts.follow.setAttribute("aria-pressed", String(follows));
    if (follows) for (const pane of this.panes) { pane.toEnd(); pane.ask(); }
  }

  /** Together and without a filter, since that is where every line has a place. */
  show(index) {
    this.setFollowing(false);
    if (this.parts.filter.value || this.parts.hosts.value !== "together") {
      this.parts.filter.value = "";
      this.parts.hosts.value = "together";
      this.arrange();
    }
    const [pane] = this.panes;
    pane.redraw();
    pane.show(index);
  }

  async toTarget() {
    this.redraw();
    if (!this.target) return;
    const isShown = [...this.root.querySelectorAll(".row a.n")].some((each) => each.hash === location.hash);
    if (isShown || this.first === null) return;
    const found = await this.ask(`window?limit=1&at=${encodeURIComponent(this.target)}&to=${this.first}`);
    if (found && found.at !== null) this.show(found.at);
  }

  /** The first line that looks like an error, then the next. */
  async toError() {
    const { error } = this.parts;
    if (this.isLooking || this.cursor === null) return;
    this.isLooking = true;
    error.textContent = "Looking…";
    let next = this.errorsFrom, hit = null;
    while (next !== null && hit === null) {
      const found = await this.ask(`search?error=true&limit=1&offset=${next}&to=${this.cursor}`);
      if (found === null) break;
      next = found.next;
      if (found.matching.length) hit = found.lines[0];
    }
    this.isLooking = false;
    error.textContent = hit ? "Next error" : this.errorsFrom ? "First error" : "No error";
    this.errorsFrom = hit ? hit.index + 1 : 0;
    if (!hit) return;
    this.target = placeOf(hit);
    history.replaceState(null, "", `#line=${this.target}`);
    this.show(hit.index);
  }

  /** An answer, or null where the service cannot be reached. */
  async ask(path) {
    try {
      const answer = await fetch(`${this.url}/${path}`, { cache: "no-store" });
      return answer.ok ? await answer.json() : null;
    } catch (error) {
      if (error instanceof TypeError) return null;
      throw error;
    }
  }

  setState(state, detail) {
    this.state = state;
    this.detail = detail;
    if (state === "live" || state === "ended") this.notice = "";
    this.root.dataset.connection = state;
    this.say();
    for (const pane of this.panes) pane.ask();
  }

  say() {
    const total = many(this.countOf(null));
    const found = this.panes.map((pane) => pane.view.said?.()).filter(Boolean).join(" · ");
    const words = {
      connecting: "connecting…",
      reconnecting: "connection lost, trying again…",
      unauthorized: "logged out",
      refused: this.detail,
      ended: `${total} lines · ${String(this.detail).toLowerCase()}`,
      live: `live · ${total} lines`,
    }[this.state];
    const text = [words, found, this.notice].filter(Boolean).join(" · ");
    if (this.parts.state.textContent !== text) this.parts.state.textContent = text;
  }

  emptyWords() {
    return this.state === "ended" ? "The job wrote nothing." : this.state === "live" ? "Nothing written yet." : "";
  }
}

/** Every line of the hosts. */
class AllView {
  constructor(log, hosts) {
    Object.assign(this, { log, hosts });
  }

  begin(onLoad) {
    this.lines = new Lines(this.log.url, this.hosts, onLoad);
    if (this.log.cursor !== null) this.lines.addRange(null, this.log.cursor, this.log.countOf(this.hosts));
  }

  add({ from, to, lines }) { this.lines.add(from, to, lines); }

  get length() { return this.lines ? this.lines.length : 0; }

  row(index) { return this.log.row(this.lines.get(index)); }

  words() { return this.log.emptyWords(); }

  stop() {}
}

/** The lines that match the filter. */
class FoundView {
  constructor(log, hosts, query) {
    Object.assign(this, { log, hosts, query });
  }

  begin(_onLoad, onChange) {
    this.matches = new Matches(this.log.url, this.hosts, this.query, onChange);
    if (this.log.cursor !== null) this.matches.look(null, this.log.cursor, this.log.countOf(this.hosts));
  }

  add({ from, to }, fresh) { this.matches.look(from, to, this.log.countOf(this.hosts, fresh)); }

  get length() { return this.matches ? this.matches.length : 0; }

  row(index) {
    const { line, isMatch, isAfterGap } = this.matches.items[index];
    return this.log.row(line, `${isMatch ? "" : "around"} ${isAfterGap ? "gap" : ""}`);
  }

  words() {
    return this.matches.error || (this.matches.isBusy ? "Looking…" : "No line matches the filter.");
  }

  said() {
    const { count, isFull, isBusy, looked, error } = this.matches;
    if (error) return "the filter is refused";
    const words = `${many(count)} ${count === 1 ? "match" : "matches"}`;
    if (isFull) return `first ${words}: narrow the filter, or download`;
    return isBusy ? `${words} in ${many(looked)} lines, looking on…` : words;
  }

  stop() { this.matches?.stop(); }
}

function span(className, text) {
  return Object.assign(document.createElement("span"), { className, textContent: text });
}

for (const root of document.querySelectorAll("[data-log]")) new Log(root);
