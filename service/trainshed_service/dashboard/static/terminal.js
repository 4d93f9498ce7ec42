// What a terminal would show of a line: colours, and progress bars that write over themselves. Text is only ever put
// into text nodes, so nothing in a log becomes markup.

const TOKEN = /\x1b\[([0-9;:?]*)([ -/]*[@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b[@-Z\\-_]|\x1b|[\r\b\t]|[^\x1b\r\b\t]+/g;
const LONGEST = 8192;
const PLAIN = { fg: null, bg: null, bold: false, dim: false, italic: false, under: false, strike: false, turned: false };

/** Spans [{ text, style }] of a line; `style` is null where it is plain. */
export function render(text) {
  if (text.length > LONGEST) text = `${text.slice(0, LONGEST)} … [${text.length} characters: the download has all]`;
  if (!/[\x00-\x08\x0b-\x1f\x7f]/.test(text)) return [{ text, style: null }];
  const cells = [];  // [character, style]
  let at = 0, style = null;
  for (const [whole, codes, command] of text.matchAll(TOKEN)) {
    if (whole === "\r") at = 0;
    else if (whole === "\b") at = Math.max(0, at - 1);
    else if (whole === "\t") { const stop = (Math.floor(at / 8) + 1) * 8; while (at < stop) put(" "); }
    else if (whole[0] !== "\x1b") for (const sign of whole) put(sign);
    else if (command === "m") style = styled(style, codes);
    else if (command === "K") erase(Number(codes) || 0);
    else if (command === "G") at = clamp((Number(codes) || 1) - 1);
    else if (command === "C") at = clamp(at + (Number(codes) || 1));
    else if (command === "D") at = clamp(at - (Number(codes) || 1));
  }
  return spans(cells);

  function clamp(place) {
    return Math.min(LONGEST, Math.max(0, place));
  }

  function put(sign) {
    if (sign < " " || sign === "\x7f") return;
    while (cells.length < at) cells.push([" ", null]);
    cells[at++] = [sign, style];
  }

  function erase(how) {
    if (how === 0) cells.length = Math.min(cells.length, at);
    else if (how === 2) cells.length = 0;
    else for (let place = 0; place <= at && place < cells.length; place++) cells[place] = [" ", null];
  }
}

function spans(cells) {
  while (cells.length && cells[cells.length - 1][0] === " " && cells[cells.length - 1][1] === null) cells.pop();
  const found = [];
  for (const [sign, style] of cells) {
    const last = found[found.length - 1];
    if (last && last.style === style) last.text += sign;
    else found.push({ text: sign, style });
  }
  return found;
}

function styled(before, codes) {
  const next = { ...(before || PLAIN) }, numbers = codes.split(/[;:]/).map((each) => Number(each) || 0);
  for (let index = 0; index < numbers.length; index++) {
    const code = numbers[index];
    if (code === 0) Object.assign(next, PLAIN);
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.under = true;
    else if (code === 7) next.turned = true;
    else if (code === 9) next.strike = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.under = false;
    else if (code === 27) next.turned = false;
    else if (code === 29) next.strike = false;
    else if (code >= 30 && code <= 37) next.fg = code - 30;
    else if (code >= 40 && code <= 47) next.bg = code - 40;
    else if (code >= 90 && code <= 97) next.fg = code - 82;
    else if (code >= 100 && code <= 107) next.bg = code - 92;
    else if (code === 39) next.fg = null;
    else if (code === 49) next.bg = null;
    else if (code === 38 || code === 48) {
      const [colour, used] = extended(numbers.slice(index + 1));
      next[code === 38 ? "fg" : "bg"] = colour;
      index += used;
    }
  }
  return Object.values(next).some((value) => value !== null && value !== false) ? next : null;
}

/** Of 256 colours or of all: a number below 16 (of the style sheet), or an rgb(). */
function extended([kind, a, b, c]) {
  const part = (value) => Math.min(255, Math.max(0, value || 0));
  if (kind === 2) return [`rgb(${part(a)} ${part(b)} ${part(c)})`, 4];
  if (kind !== 5) return [null, 1];
  if (a < 16) return [a, 2];
  if (a >= 232) { const grey = 8 + (Math.min(a, 255) - 232) * 10; return [`rgb(${grey} ${grey} ${grey})`, 2]; }
  const cube = (value) => (value ? 55 + value * 40 : 0), place = (a || 16) - 16;
  return [`rgb(${cube(Math.floor(place / 36))} ${cube(Math.floor(place / 6) % 6)} ${cube(place % 6)})`, 2];
}

/** The spans as nodes. Colours are classes, or set through the style object, which the content policy allows. */
export function nodes(found) {
  return found.map(({ text, style }) => {
    if (style === null) return document.createTextNode(text);
    const node = document.createElement("span");
    node.textContent = text;
    let { fg, bg } = style;
    if (style.turned) [fg, bg] = [bg ?? "ground", fg ?? "ink"];
    for (const [what, colour] of [["fg", fg], ["bg", bg]]) {
      if (colour === null) continue;
      if (typeof colour === "string" && colour.startsWith("rgb")) node.style[what === "fg" ? "color" : "backgroundColor"] = colour;
      else node.classList.add(`${what}-${colour}`);
    }
    for (const name of ["bold", "dim", "italic", "under", "strike"]) if (style[name]) node.classList.add(`t-${name}`);
    return node;
  });
}
