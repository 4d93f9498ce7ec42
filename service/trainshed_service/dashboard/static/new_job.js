// The form of a new job writes into the JSON text, the text is shown in the form, and the service says what it would do.

const form = document.getElementById("new-job"), spec = document.getElementById("spec");
const fields = form.querySelector("[data-fields]"), verdict = document.getElementById("verdict");
const WAIT = 400;
let timer = 0, asked = 0, isTouched = form.dataset.begun !== undefined;

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

function read() {
  try {
    const value = JSON.parse(spec.value);
    if (!isObject(value)) throw new SyntaxError("a request is an object: { … }");
    spec.removeAttribute("aria-invalid");
    return value;
  } catch (error) {
    spec.setAttribute("aria-invalid", "true");
    return error;
  }
}

function get(value, path) {
  return path.split(".").reduce((part, name) => (isObject(part) ? part[name] : undefined), value);
}

/** Sets or (undefined) removes a member; an object that becomes empty by that goes too. */
function set(value, path, member) {
  const [name, ...rest] = path.split(".");
  if (!rest.length) { if (member === undefined) delete value[name]; else value[name] = member; return; }
  if (!isObject(value[name])) { if (member === undefined) return; value[name] = {}; }
  set(value[name], rest.join("."), member);
  if (member === undefined && !Object.keys(value[name]).length) delete value[name];
}

const toLines = (map) => Object.entries(map || {}).map(([name, value]) => `${name} = ${value}`).join("\n");

function fromLines(text) {
  const found = [];
  for (const line of text.split("\n")) {
    const equals = line.indexOf("=");
    const name = (equals < 0 ? line : line.slice(0, equals)).trim();
    if (name) found.push([name, equals < 0 ? "" : line.slice(equals + 1).trim()]);
  }
  return found;
}

const LINES = {
  HyperParameters: { show: (value) => toLines(value.HyperParameters), put: (value, pairs) => set(value, "HyperParameters", pairs.length ? Object.fromEntries(pairs) : undefined) },
  Environment: { show: (value) => toLines(value.Environment), put: (value, pairs) => set(value, "Environment", pairs.length ? Object.fromEntries(pairs) : undefined) },
  Tags: {
    show: (value) => (Array.isArray(value.Tags) ? value.Tags.map((tag) => `${tag.Key} = ${tag.Value}`).join("\n") : ""),
    put: (value, pairs) => set(value, "Tags", pairs.length ? pairs.map(([Key, Value]) => ({ Key, Value })) : undefined),
  },
  inputs: {
    show: (value) => (Array.isArray(value.InputDataConfig) ? value.InputDataConfig : [])
      .map((channel) => `${channel?.ChannelName} = ${channel?.DataSource?.S3DataSource?.S3Uri ?? ""}`).join("\n"),
    put(value, pairs) {
      const before = Array.isArray(value.InputDataConfig) ? value.InputDataConfig : [];
      const channels = pairs.map(([name, uri]) => {
        const known = before.find((channel) => channel.ChannelName === name) || { ChannelName: name };
        const source = { S3DataType: "S3Prefix", ...known.DataSource?.S3DataSource, S3Uri: uri };
        return known.DataSource && !known.DataSource.S3DataSource ? known : { ...known, DataSource: { S3DataSource: source } };
      });
      set(value, "InputDataConfig", channels.length ? channels : undefined);
    },
  },
};

function show() {
  const value = read();
  if (value instanceof Error) return;
  for (const field of fields.querySelectorAll("[data-path]")) {
    if (field !== document.activeElement) field.value = get(value, field.dataset.path) ?? "";
  }
  for (const field of fields.querySelectorAll("[data-lines]")) {
    if (field !== document.activeElement) field.value = LINES[field.dataset.lines].show(value);
  }
}

function write(field) {
  const value = read();
  if (value instanceof Error) return;
  if (field.dataset.path) {
    const text = field.value.trim();
    set(value, field.dataset.path, text === "" ? undefined : field.type === "number" ? Number(text) : text);
  } else {
    LINES[field.dataset.lines].put(value, fromLines(field.value));
  }
  spec.value = JSON.stringify(value, null, 2);
}

function say(nodes) {
  verdict.replaceChildren(...nodes);
}

function text(tag, className, words) {
  return Object.assign(document.createElement(tag), { className, textContent: words });
}

function list(items) {
  const node = document.createElement("ul");
  node.append(...items.map((each) => text("li", "", each)));
  return node;
}

async function check() {
  const number = ++asked;
  const value = read();
  if (value instanceof Error) { say([text("p", "bad-news", "This is no JSON yet"), text("p", "", value.message)]); return; }
  try {
    const body = new URLSearchParams({ csrf: form.elements.csrf.value, spec: spec.value });
    const answer = await fetch("/new-job/check", { method: "POST", body, redirect: "manual" });
    if (number !== asked) return;
    if (answer.type === "opaqueredirect" || answer.status === 401 || answer.status === 403) {
      say([text("p", "bad-news", "You are logged out. Copy your text, then log in again.")]);
      return;
    }
    if (!answer.ok) throw new TypeError(`status ${answer.status}`);
    const found = await answer.json();
    say(found.valid ? allowed(found) : refused(found));
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    if (number !== asked) return;
    say([text("p", "bad-news", "The service cannot be reached. Trying again…")]);
    timer = setTimeout(check, 2000);
  }
}

function refused(found) {
  if (!isTouched) return [text("p", "dim", "Give the job a name; what is missing or wrong is said here while you write.")];
  return [text("p", "bad-news", "It would be refused"), list(found.refusals.map((each) => each.message))];
}

function allowed({ allocation, notices }) {
  const hosts = allocation.hosts.map((host) => `${host.host}: ${host.instanceType}${host.nodeId ? ` on ${host.nodeId}` : ""}`);
  const some = hosts.length > 8 ? [...hosts.slice(0, 8), `and ${hosts.length - 8} more`] : hosts;
  const start = allocation.projectedStart ? `about ${new Date(allocation.projectedStart * 1000).toLocaleString()}` : "not known yet";
  const head = allocation.startsNow
    ? [text("p", "good-news", allocation.warmPool ? `Valid. It would start at once on the warm pool ${allocation.warmPool}.` : "Valid. It would start at once.")]
    : [text("p", "good-news", "Valid. It would wait."), text("p", "", allocation.waitingReason || ""),
      text("p", "dim", `Jobs ahead: ${allocation.jobsAhead ?? 0}. Projected start: ${start}.`)];
  return [...head, list(some), ...(notices?.length ? [text("p", "dim", "Notices"), list(notices)] : [])];
}

function later() {
  isTouched = true;
  clearTimeout(timer);
  timer = setTimeout(check, WAIT);
}

fields.hidden = false;
fields.addEventListener("input", (event) => { write(event.target); later(); });
spec.addEventListener("input", () => { show(); later(); });
show();
check();
