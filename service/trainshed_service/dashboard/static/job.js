// One job: copies its report, and tells the values of a chart under the pointer or the keys.

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy), said = button.parentElement.querySelector("[data-copied]");
  try {
    await navigator.clipboard.writeText(source.textContent);
    said.textContent = "Copied";
  } catch {  // browsers give the clipboard to pages over https and of this machine only
    source.closest("details").open = true;
    const range = document.createRange();
    range.selectNodeContents(source);
    const selection = document.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    said.textContent = document.execCommand("copy") ? "Copied" : "Selected: copy it with the keyboard";
  }
});

const WIDTH = 320, HEIGHT = 90, MARGIN = 4;
const short = (value) => Number(value.toPrecision(4)).toString();

function pointsOf(path) {
  const numbers = (path.getAttribute("d").match(/-?[\d.]+(?= |L|h|$)|(?<= )-?[\d.]+/g) || []).map(Number);
  const points = [];
  for (let index = 0; index + 1 < numbers.length; index += 2) points.push([numbers[index], numbers[index + 1]]);
  return points;
}

function tell(figure, x) {
  const { start, end, least, greatest } = figure.dataset;
  const share = (x - MARGIN) / (WIDTH - 2 * MARGIN);
  const at = Number(start) + Math.min(1, Math.max(0, share)) * (Number(end) - Number(start));
  for (const path of figure.querySelectorAll("path.line")) {
    let near = null;
    for (const point of pointsOf(path)) if (!near || Math.abs(point[0] - x) < Math.abs(near[0] - x)) near = point;
    if (!near) continue;
    const height = (HEIGHT - near[1] - MARGIN) / (HEIGHT - 2 * MARGIN);
    const value = greatest > least ? Number(least) + Math.min(1, Math.max(0, height)) * (greatest - least) : Number(least);
    const place = [...figure.querySelectorAll("[data-of]")].find((each) => each.dataset.of === path.dataset.label) || figure.querySelector("[data-value]");
    place.textContent = `≈ ${short(value)}`;
  }
  const cross = figure.querySelector(".cross");
  cross.setAttribute("x1", x);
  cross.setAttribute("x2", x);
  figure.querySelector("[data-when]").textContent = new Date(at).toLocaleTimeString();
}

document.addEventListener("pointermove", (event) => {
  const svg = event.target.closest?.("[data-chart] > svg");
  if (!svg) return;
  const box = svg.getBoundingClientRect();
  tell(svg.parentElement, ((event.clientX - box.left) / box.width) * WIDTH);
});
