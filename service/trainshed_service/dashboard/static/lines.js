// The lines of a log by number, of which only some are in memory. What lies between two cursors never changes, so a log
// is a list of segments: the first holds what was there at the beginning, and each batch that comes adds one.

const BLOCK = 500, MOST_BLOCKS = 160, JOINED = 2000, TOGETHER = 4, RETRY = 1000;

export class Lines {
  #segments = [];
  #blocks = new Map();  // "segment:block" → lines, those used last at the end
  #asked = new Map();
  #running = 0;

  /** `hosts` null: all. `onLoad()` is called when lines that were asked for are there. */
  constructor(url, hosts, onLoad) {
    this.url = url;
    this.hosts = hosts;
    this.onLoad = onLoad;
    this.length = 0;
  }

  /** `count` lines between the cursors that are not here yet. */
  addRange(from, to, count) {
    if (!count) return;
    this.#segments.push({ start: this.length, count, from, to });
    this.length += count;
  }

  /** Lines that have come, all of them between the cursors. */
  add(from, to, lines) {
    const own = this.hosts ? lines.filter((line) => this.hosts.includes(line.host)) : lines;
    if (!own.length) return;
    const last = this.#segments[this.#segments.length - 1];
    if (last && last.to === from && last.count + own.length <= JOINED && this.#isInOrder(this.get(this.length - 1, false), own[0])) {
      const at = last.count;
      last.to = to;
      last.count += own.length;
      this.#keep(this.#segments.length - 1, at, own);
    } else {
      this.#segments.push({ start: this.length, count: own.length, from, to });
      this.#keep(this.#segments.length - 1, 0, own);
    }
    this.length += own.length;
  }

  /** The line, or null while it is fetched. */
  get(index, wanted = true) {
    const number = this.#find(index), segment = this.#segments[number];
    if (!segment) return null;
    const within = index - segment.start, block = Math.floor(within / BLOCK), key = `${number}:${block}`;
    const lines = this.#blocks.get(key);
    const line = lines?.[within % BLOCK];
    if (line) { this.#blocks.delete(key); this.#blocks.set(key, lines); return line; }
    if (wanted) this.#ask(key, number, block);
    return null;
  }

  /** Nothing that was asked for so far is wanted any more; what still is will be asked for again. */
  forget() {
    this.#asked.clear();
  }

  #isInOrder(before, after) {
    return before !== null && (before.timestamp < after.timestamp || (before.timestamp === after.timestamp && before.stream === after.stream));
  }

  #keep(number, at, lines) {
    for (let done = 0; done < lines.length;) {
      const within = at + done, block = Math.floor(within / BLOCK), key = `${number}:${block}`, skip = within % BLOCK;
      const piece = lines.slice(done, done + BLOCK - skip), known = this.#blocks.get(key) || [];
      this.#blocks.delete(key);
      if (known.length === skip) this.#blocks.set(key, [...known, ...piece]);  // else it is fetched whole
      done += piece.length;
    }
    while (this.#blocks.size > MOST_BLOCKS) this.#blocks.delete(this.#blocks.keys().next().value);
  }

  #find(index) {
    let low = 0, high = this.#segments.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#segments[middle].start <= index) low = middle; else high = middle - 1;
    }
    return low;
  }

  #ask(key, number, block) {
    this.#asked.delete(key);
    this.#asked.set(key, [number, block]);
    queueMicrotask(() => this.#next());
  }

  #next() {
    while (this.#running < TOGETHER && this.#asked.size) {
      const [key, [number, block]] = [...this.#asked].pop();  // what was wanted last is what is looked at
      this.#asked.delete(key);
      if (this.#loading.has(key)) continue;
      this.#load(key, number, block);
    }
  }

  #loading = new Set();

  async #load(key, number, block) {
    const { from, to } = this.#segments[number];
    this.#running += 1;
    this.#loading.add(key);
    try {
      const query = new URLSearchParams({ offset: block * BLOCK, limit: BLOCK, to });
      if (from !== null) query.set("from", from);
      for (const host of this.hosts || []) query.append("host", host);
      const answer = await fetch(`${this.url}/window?${query}`, { cache: "no-store" });
      if (!answer.ok) throw new TypeError(`status ${answer.status}`);
      const { lines } = await answer.json();
      const known = this.#blocks.get(key) || [];
      this.#blocks.delete(key);
      this.#blocks.set(key, lines.length > known.length ? lines : known);  // lines may have come meanwhile
      while (this.#blocks.size > MOST_BLOCKS) this.#blocks.delete(this.#blocks.keys().next().value);
      this.onLoad();
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      setTimeout(() => this.onLoad(), RETRY);  // whoever still wants the lines asks again
    } finally {
      this.#running -= 1;
      this.#loading.delete(key);
      this.#next();
    }
  }
}

/** Lines that match, with those around them, in memory: fetched in steps, going on when more lines have come. */
export class Matches {
  constructor(url, hosts, query, onChange) {
    Object.assign(this, { url, hosts, query, onChange });
    this.items = [];  // { line, isMatch, isAfterGap }
    this.ranges = [];
    this.base = 0;  // lines of the ranges that are done
    this.count = 0;
    this.error = "";
    this.isFull = false;
    this.isBusy = false;
    this.looked = 0;
    this.stopped = new AbortController();
  }

  get length() { return this.items.length; }

  /** `total` more lines lie between the cursors: they are looked through after those before them. */
  look(from, to, total) {
    if (!total) return;
    const last = this.ranges[this.ranges.length - 1];
    if (last && !last.isBegun && last.to === from) { last.to = to; last.total += total; }
    else this.ranges.push({ from, to, total });
    if (!this.isBusy) this.#run();
  }

  async #run() {
    this.isBusy = true;
    for (let range; (range = this.ranges[0]); this.ranges.shift()) {
      range.isBegun = true;
      for (let next = 0; next !== null && !this.isFull && !this.error;) {
        next = await this.#step(range, next);
        if (next === undefined) return;
      }
      this.base += range.total;
      this.looked = this.base;
    }
    this.isBusy = false;
    this.onChange();
  }

  async #step({ from, to, total }, offset) {
    const query = new URLSearchParams({ ...this.query, offset, limit: 500, to });
    if (from !== null) query.set("from", from);
    for (const host of this.hosts || []) query.append("host", host);
    try {
      const answer = await fetch(`${this.url}/search?${query}`, { cache: "no-store", signal: this.stopped.signal });
      if (answer.status === 400) { this.error = (await answer.json()).message; return null; }
      if (!answer.ok) throw new TypeError(`status ${answer.status}`);
      const found = await answer.json();
      for (const line of found.lines) line.index += this.base;
      this.#take(found.lines, new Set(found.matching.map((index) => index + this.base)));
      this.looked = this.base + (found.next ?? total);
      this.onChange();
      return found.next;
    } catch (error) {
      if (error.name === "AbortError") return undefined;
      if (!(error instanceof TypeError)) throw error;
      await new Promise((resolve) => setTimeout(resolve, RETRY));
      return this.stopped.signal.aborted ? undefined : offset;
    }
  }

  #take(lines, hits) {
    for (const line of lines) {
      const last = this.items[this.items.length - 1];
      if (last && last.line.index >= line.index) {  // around matches of two steps
        const same = hits.has(line.index) && this.items.findLast((each) => each.line?.index === line.index);
        if (same) same.isMatch = true;
        continue;
      }
      const isFar = last && line.index > last.line.index + 1 && Number(this.query.context) > 0;
      this.items.push({ line, isMatch: hits.has(line.index), isAfterGap: isFar });
    }
    this.count += hits.size;
    if (this.items.length >= Matches.MOST) this.isFull = true;
  }

  stop() { this.stopped.abort(); }
}
Matches.MOST = 20000;
