// The log of a job: all lines in memory, only those in sight in the page. Lines come by stream.js, each exactly once.

import { follow } from "./stream.js";

const ESCAPES = /\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g;
const EXTRA = 12;
const TALLEST = 15_000_000;  // browsers draw no element that is much higher

/** What a terminal would show of a line: no escape sequences, the text behind the last carriage return. */
function visible(text) {
  if (text.includes("\x1b")) text = text.replace(ESCAPES, "");
  if (text.includes("\r")) text = text.replace(/\r+$/, "").split("\r").pop();
  return text;
}

/** A window on those lines that `accepts` lets through. */
class Pane {
  constructor(label, accepts, log) {
    this.accepts = accepts;
    this.log = log;
    this.kept = [];
    this.seen = 0;
    this.isAsked = false;
    this.node = document.createElement("div");
    this.node.className = "pane";
    if (label) this.node.append(Object.assign(document.createElement("h3"), { textContent: label }));
    this.scroller = Object.assign(document.createElement("div"), { className: "scroller", tabIndex: 0 });
    this.scroller.setAttribute("role", "region");
    this.scroller.setAttribute("aria-label", label ? `Lines of ${label}` : "Lines of the log");
    this.space = Object.assign(document.createElement("div"), { className: "space" });
    this.rows = Object.assign(document.createElement("div"), { className: "rows" });
    this.empty = Object.assign(document.createElement("p"), { className: "empty" });
    this.space.append(this.rows);
    this.scroller.append(this.empty, this.space);
    this.node.append(this.scroller);
    this.at = { scrollTop: 0, scrollHeight: 0, clientHeight: 0 };
    this.scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    new ResizeObserver(() => { if (log.isFollowing) this.toEnd(); this.ask(); }).observe(this.scroller);
  }

  take() {
    const { lines } = this.log;
    for (; this.seen < lines.length; this.seen++) if (this.accepts(lines[this.seen])) this.kept.push(this.seen);
    this.ask();
  }

  refilter() {
    this.kept = [];
    this.seen = 0;
    this.take();
  }

  /** Scrolling up pauses, scrolling down to the end follows; a window that only changed its size does neither. */
  scrolled() {
    const before = this.at;
    this.note();
    const { scrollTop, scrollHeight, clientHeight } = this.at;
    if (scrollHeight === before.scrollHeight && clientHeight === before.clientHeight) {
      if (scrollTop < before.scrollTop - 2) this.log.setFollowing(false);
      else if (scrollTop > before.scrollTop + 2 && scrollHeight - scrollTop - clientHeight < 4) this.log.setFollowing(true);
    }
    this.ask();
  }

  toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.note();
  }

  note() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.at = { scrollTop, scrollHeight, clientHeight };
  }

  ask() {
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => { this.isAsked = false; this.draw(); });
  }

  draw() {
    const { kept, scroller, log } = this;
    const height = log.lineHeight();
    const total = Math.min(kept.length * height, TALLEST);
    if (this.total !== total) { this.total = total; this.space.style.height = `${total}px`; }
    if (log.isFollowing) this.toEnd();
    const ratio = kept.length * height > TALLEST ? (kept.length * height - scroller.clientHeight) / (TALLEST - scroller.clientHeight) : 1;
    const offset = scroller.scrollTop * ratio;
    const first = Math.max(0, Math.floor(offset / height) - EXTRA);
    const last = Math.min(kept.length, Math.ceil((offset + scroller.clientHeight) / height) + EXTRA);
    const rows = [];
    for (let index = first; index < last; index++) rows.push(log.row(kept[index]));
    this.rows.style.transform = `translateY(${first * height - offset + scroller.scrollTop}px)`;
    this.rows.replaceChildren(...rows);
    this.empty.hidden = kept.length > 0;
    if (!kept.length) this.empty.textContent = log.emptyWords();
  }
}

class Log {
  constructor(root) {
    this.root = root;
    this.lines = [];
    this.hosts = [];
    this.isFollowing = true;
    this.panes = [];
    this.state = "connecting";
    const find = (name) => root.querySelector(`[data-${name}]`);
    this.parts = { follow: find("follow"), filter: find("filter"), hosts: find("hosts"), times: find("times"), state: find("state"), panes: find("panes") };
    this.parts.follow.addEventListener("click", () => this.setFollowing(!this.isFollowing));
    this.parts.filter.addEventListener("input", () => { for (const pane of this.panes) pane.refilter(); });
    this.parts.hosts.addEventListener("change", () => this.arrange());
    this.parts.times.addEventListener("change", () => { for (const pane of this.panes) pane.ask(); });
    this.arrange();
    follow(root.dataset.log, { onEvents: (events) => this.take(events), onState: (state, detail) => this.setState(state, detail) });
  }

  take(events) {
    for (const event of events) {
      const data = JSON.parse(event.data);
      if (event.type === "line") {
        if (!this.hosts.includes(data.host)) this.addHost(data.host);
        this.lines.push({ host: data.host, ms: data.timestamp, text: visible(data.text) });
      } else if (event.type === "silence") {
        this.parts.state.textContent = data.message;
      }
    }
    for (const pane of this.panes) pane.take();
    if (this.state === "live") this.count();
  }

  addHost(host) {
    this.hosts.push(host);
    this.hosts.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const value = this.parts.hosts.value;
    const fixed = [...this.parts.hosts.options].slice(0, 2);
    this.parts.hosts.replaceChildren(...fixed, ...this.hosts.map((each) => new Option(`only ${each}`, each)));
    this.parts.hosts.value = value;
    if (value === "apart") this.arrange();
  }

  arrange() {
    const choice = this.parts.hosts.value;
    const matches = (line) => {
      const wanted = this.parts.filter.value.toLowerCase();
      return !wanted || line.text.toLowerCase().includes(wanted);
    };
    if (choice === "apart" && this.hosts.length) {
      this.panes = this.hosts.map((host) => new Pane(host, (line) => line.host === host && matches(line), this));
    } else {
      const isOne = this.hosts.includes(choice);
      this.panes = [new Pane("", (line) => (!isOne || line.host === choice) && matches(line), this)];
    }
    this.isMerged = choice === "together";
    this.parts.panes.replaceChildren(...this.panes.map((pane) => pane.node));
    for (const pane of this.panes) pane.take();
  }

  row(index) {
    const line = this.lines[index];
    const node = document.createElement("div");
    node.className = "row";
    if (this.parts.times.checked) node.append(span("ms", new Date(line.ms).toISOString().slice(11, 23)));
    if (this.isMerged && this.hosts.length > 1) node.append(span(`host h${this.hosts.indexOf(line.host) % 6}`, line.host));
    node.append(span("text", line.text));
    return node;
  }

  lineHeight() {
    this.height ||= parseFloat(getComputedStyle(this.root).getPropertyValue("--line")) || 18;
    return this.height;
  }

  setFollowing(follows) {
    if (this.isFollowing === follows) return;
    this.isFollowing = follows;
    this.parts.follow.setAttribute("aria-pressed", String(follows));
    if (follows) for (const pane of this.panes) { pane.toEnd(); pane.ask(); }
  }

  setState(state, detail) {
    this.state = state;
    this.root.dataset.connection = state;
    const words = {
      connecting: "connecting…",
      reconnecting: "connection lost, trying again…",
      unauthorized: "logged out",
      refused: detail,
      ended: `${this.lines.length.toLocaleString("en")} lines · ${String(detail).toLowerCase()}`,
    };
    if (state === "live") this.count();
    else this.parts.state.textContent = words[state];
    for (const pane of this.panes) pane.ask();
  }

  count() {
    this.parts.state.textContent = `live · ${this.lines.length.toLocaleString("en")} lines`;
  }

  emptyWords() {
    if (this.lines.length) return "No line matches the filter.";
    return this.state === "ended" ? "The job wrote nothing." : this.state === "live" ? "Nothing written yet." : "";
  }
}

function span(className, text) {
  return Object.assign(document.createElement("span"), { className, textContent: text });
}

for (const root of document.querySelectorAll("[data-log]")) new Log(root);
