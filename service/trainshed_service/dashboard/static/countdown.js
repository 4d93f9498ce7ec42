// Counts down to [data-until] (epoch seconds of the service), second by second, by the service's clock.

let ahead = 0;  // by how many seconds the service's clock is ahead of this browser's

function words(seconds) {
  const whole = Math.max(0, Math.ceil(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  const two = (value) => String(value).padStart(2, "0");
  if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

function tick() {
  const now = Date.now() / 1000 + ahead;
  for (const each of document.querySelectorAll("[data-until]")) {
    const left = each.dataset.until - now;
    if (each.tagName === "PROGRESS") {
      each.max = Math.max(1, each.dataset.until - each.dataset.from);
      each.value = Math.min(each.max, Math.max(0, left));
      continue;
    }
    each.title ||= new Date(each.dataset.until * 1000).toLocaleString();
    const text = left > 0 ? words(left) : "ending…";
    if (each.textContent !== text) each.textContent = text;
    each.classList.toggle("soon", left < 60);
  }
}

/** The header Date has whole seconds: a difference of less than two says nothing. */
async function ask() {
  const sent = Date.now();
  const answer = await fetch("/favicon.ico", { method: "HEAD", cache: "no-store" }).catch(() => null);
  const told = Date.parse(answer?.headers.get("date") ?? "");
  const difference = (told + 500 - (sent + Date.now()) / 2) / 1000;
  if (Math.abs(difference) > 2) ahead = difference;
}

tick();
setInterval(tick, 500);
document.addEventListener("trainshed:page", tick);  // a part of the page is new
ask().then(tick);
