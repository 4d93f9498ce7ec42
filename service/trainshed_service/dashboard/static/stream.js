// Follows a stream of server-sent events over fetch: the last id goes along with each new connection, so that nothing
// is missed and nothing comes twice. (EventSource tells neither the status of an answer nor when it tries again.)

const FIRST_WAIT = 400, LONGEST_WAIT = 8000, SILENCE = 45000;

const wait = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal?.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
});

/** Splits text into whole events; what is not whole yet is kept for the next piece. */
export class EventParser {
  #rest = "";

  push(text) {
    const blocks = (this.#rest + text).split("\n\n");
    this.#rest = blocks.pop();
    const events = [];
    for (const block of blocks) {
      const event = { id: null, type: "message", data: "" };
      for (const line of block.split("\n")) {
        const colon = line.indexOf(":");
        if (colon <= 0) continue;  // a comment keeps the connection alive
        const value = line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
        const field = line.slice(0, colon);
        if (field === "id") event.id = value;
        else if (field === "event") event.type = value;
        else if (field === "data") event.data += value;
      }
      if (event.data) events.push(event);
    }
    return events;
  }
}

/** What an answer that is no stream says; a page says it in its text. */
async function told(answer) {
  if ((answer.headers.get("content-type") || "").includes("json")) return (await answer.json()).message;
  return answer.status === 404 ? "This is gone." : `The service refused this (${answer.status}).`;
}

/**
 * Calls `onEvents(events)` for every batch until an event `end` came, and `onState(state, detail)` when the connection
 * changes: connecting, live, reconnecting, ended, unauthorized, refused.
 */
export async function follow(url, { onEvents, onState, signal, lastId = null }) {
  let pause = FIRST_WAIT;
  onState("connecting");
  while (!signal?.aborted) {
    const outcome = await connect();
    if (outcome !== "again") { onState(outcome.state, outcome.detail); return; }
    onState("reconnecting", pause);
    await wait(pause, signal);
    pause = Math.min(LONGEST_WAIT, pause * 1.6);
  }

  async function connect() {
    const control = new AbortController();
    const stop = () => control.abort();
    signal?.addEventListener("abort", stop, { once: true });
    let watch = setTimeout(stop, SILENCE);
    try {
      const headers = { accept: "text/event-stream", ...(lastId === null ? {} : { "last-event-id": lastId }) };
      const answer = await fetch(url, { headers, cache: "no-store", signal: control.signal });
      if (answer.status === 401) return { state: "unauthorized" };
      if (answer.status >= 500 || answer.status === 429) return "again";
      if (!answer.ok) return { state: "refused", detail: await told(answer) };
      onState("live");
      const parser = new EventParser(), decoder = new TextDecoder(), reader = answer.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return "again";
        clearTimeout(watch);
        watch = setTimeout(stop, SILENCE);
        pause = FIRST_WAIT;
        const events = parser.push(decoder.decode(value, { stream: true }));
        if (!events.length) continue;
        for (const event of events) if (event.id !== null) lastId = event.id;
        onEvents(events);
        const last = events[events.length - 1];
        if (last.type === "end") return { state: "ended", detail: JSON.parse(last.data).status };
      }
    } catch (error) {
      if (error instanceof TypeError || error.name === "AbortError" || error.name === "NetworkError") return "again";
      throw error;
    } finally {
      clearTimeout(watch);
      signal?.removeEventListener("abort", stop);
    }
  }
}
