// A window on a list of rows of which only those in sight are in the page. The place in the list follows the place of the
// scroll bar: at a share p of its way, the row at p of the list stands at p of the window's height. So both ends are
// reached exactly, with lists that are longer than a browser can make an element high, and with rows of any height.

const EXTRA = 12;
const TALLEST = 15_000_000;  // browsers draw no element that is much higher

export class Pane {
  /** `view`: { length, row(index) → node, words() → said when it is empty }. */
  constructor(label, view, log) {
    this.view = view;
    this.log = log;
    this.isAsked = false;
    this.nodes = new Map();
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
    this.observer = new ResizeObserver(() => { if (log.isFollowing) this.toEnd(); this.ask(); });
    this.observer.observe(this.scroller);
  }

  close() {
    this.observer.disconnect();
  }

  /** Rows look different now. */
  redraw() {
    this.nodes.clear();
    this.ask();
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

  /** Brings a row into the middle of the window. */
  show(index) {
    this.stretch();
    const { scrollHeight, clientHeight } = this.scroller;
    const share = Math.min(1, (index + 0.5) / Math.max(1, this.view.length));
    const height = Math.min(this.view.length * this.log.lineHeight(), TALLEST);
    const exact = (index + 0.5) * this.log.lineHeight() - clientHeight / 2;  // where rows have one height and no limit
    this.scroller.scrollTop = height < TALLEST && !this.log.wraps ? exact : share * (scrollHeight - clientHeight);
    this.note();
    this.ask();
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

  stretch() {
    const total = this.view.length * this.log.lineHeight();
    this.isWhole = this.log.wraps && total < 2 * Math.max(600, this.scroller.clientHeight);
    const height = this.isWhole ? "auto" : `${Math.min(total, TALLEST)}px`;
    if (this.space.style.height !== height) this.space.style.height = height;
    this.rows.classList.toggle("whole", this.isWhole);
  }

  draw() {
    const { view, scroller, log } = this;
    this.stretch();
    const count = view.length, line = log.lineHeight();
    if (this.isWhole) {
      this.rows.style.transform = "";
      this.put(0, count);
      if (log.isFollowing) this.toEnd();
    } else {
      if (log.isFollowing) this.toEnd();
      const { scrollTop, scrollHeight, clientHeight } = scroller;
      const share = scrollHeight > clientHeight ? Math.min(1, Math.max(0, scrollTop / (scrollHeight - clientHeight))) : 0;
      const middle = share * count, y = share * clientHeight;
      const first = Math.max(0, Math.floor(middle - y / line) - EXTRA);
      const last = Math.min(count, Math.ceil(middle + (clientHeight - y) / line) + EXTRA);
      this.put(first, last);
      let above = (middle - first) * line;
      if (log.wraps && last > first) {
        const place = Math.min(last - 1, Math.floor(middle)), node = this.rows.children[place - first];
        above = node.offsetTop + (middle - place) * node.offsetHeight;
      }
      this.rows.style.transform = `translateY(${scrollTop + y - above}px)`;
    }
    this.empty.hidden = count > 0;
    const words = count ? "" : view.words();
    if (this.empty.textContent !== words) this.empty.textContent = words;
  }

  /** Rows `first` … `last` stand in the page, those that stand there already are left alone. */
  put(first, last) {
    const kept = new Map(), shown = [];
    for (let index = first; index < last; index++) {
      let node = this.nodes.get(index);
      if (!node || node.isWaiting) node = this.view.row(index);
      kept.set(index, node);
      shown.push(node);
    }
    this.nodes = kept;
    const { children } = this.rows;
    const isSame = children.length === shown.length && shown.every((node, index) => children[index] === node);
    if (!isSame) this.rows.replaceChildren(...shown);
  }
}
