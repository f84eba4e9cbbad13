// Small pieces of SVG and text that the dial and the player share.

const NAMESPACE = "http://www.w3.org/2000/svg";

/** An SVG element with attributes, appended to its parent. */
export function add(parent, name, attributes = {}, text = "") {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  parent.append(element);
  return element;
}

/** An HTML element with text. */
export function html(name, text = "", attributes = {}) {
  const element = document.createElement(name);
  element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/** Four digits, a real minus, no trailing zeros. */
export function number(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e6 || size < 1e-4 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  return text.replace("-", "−");
}

/** A probability in per cent; never 100 % or 0 % unless it is certain. */
export function percent(value) {
  if (value >= 1 - 1e-12) return "100 %";
  if (value <= 1e-12) return "0 %";
  const shown = Math.min(99.9, Math.max(0.1, 100 * value));
  return `${Number(shown.toPrecision(3))} %`;
}

/** Round numbers that cover a range, about `most` of them. */
export function ticks([low, high], most = 6) {
  const raw = (high - low || 1) / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw);
  const first = Math.ceil(low / step - 1e-9);
  const values = [];
  for (let k = first; k * step <= high + step * 1e-9; k += 1) values.push(Number((k * step).toPrecision(12)));
  return values;
}

/** A window in which figures are drawn narrower, so that their text can still be read. */
export const narrow = matchMedia("screen and (max-width: 44rem)");
const NARROW = 350;

/** A frame with axes; returns the functions that turn values into coordinates. */
export function frame(svg, { width: wide, height, x, y, xTitle, yTitle, yFormat = number }) {
  const width = narrow.matches ? Math.min(wide, NARROW) : wide;
  const [left, right, top, bottom] = [58, 14, 10, 44];
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  for (const old of [...svg.children].filter((child) => child.tagName !== "title")) old.remove();
  const scaleX = (value) => left + ((value - x[0]) / (x[1] - x[0] || 1)) * (width - left - right);
  const scaleY = (value) => height - bottom - ((value - y[0]) / (y[1] - y[0] || 1)) * (height - top - bottom);
  for (const value of ticks(y, 5)) {
    add(svg, "line", { x1: left, x2: width - right, y1: scaleY(value), y2: scaleY(value), class: "rule" });
    add(svg, "text", { x: left - 6, y: scaleY(value) + 4, class: "tick end" }, yFormat(value));
  }
  for (const value of ticks(x, Math.round(width / 75))) {
    add(svg, "line", { x1: scaleX(value), x2: scaleX(value), y1: height - bottom, y2: height - bottom + 4, class: "axis" });
    add(svg, "text", { x: scaleX(value), y: height - bottom + 16, class: "tick middle" }, number(value));
  }
  add(svg, "line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "axis" });
  add(svg, "text", { x: (left + width - right) / 2, y: height - 8, class: "tick middle" }, xTitle);
  const middle = (top + height - bottom) / 2;
  add(svg, "text", { x: 12, y: middle, class: "tick middle", transform: `rotate(-90 12 ${middle})` }, yTitle);
  return { scaleX, scaleY, left, right: width - right, top, bottom: height - bottom };
}

/** Where an episode stands to its target. A target that is reached can be lost again where rewards may be negative. */
export function standing(collected, target, chance) {
  const short = target - collected;
  if (short > 1e-9 * (1 + Math.abs(target))) return `${number(short)} still missing to the target of ${number(target)}`;
  if (chance >= 1 - 1e-12) return `the target of ${number(target)} is reached`;
  return `${number(Math.max(0, -short))} may still be lost before the target of ${number(target)} is missed`;
}

/** Black or white, whichever can be read on a colour such as "#0072b2". */
export function ink(colour) {
  const part = (at) => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2;
  // The luminance at which black and white have the same contrast.
  return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5) > 0.18 ? "#000" : "#fff";
}

/** A letter or two for each action: the first letters that tell them apart, or the number. */
export function letters(actions) {
  for (const length of [1, 2]) {
    const short = actions.map((name) => name.slice(0, length));
    if (new Set(short).size === actions.length) return short;
  }
  return actions.map((_, index) => String(index));
}

/** "9 times in 10". */
export function times(percentLevel) {
  let [above, of] = [100 - percentLevel, 100];
  for (const divisor of [2, 2, 5, 5]) {
    if (above % divisor === 0 && of % divisor === 0) [above, of] = [above / divisor, of / divisor];
  }
  return `${above} ${above === 1 ? "time" : "times"} in ${of}`;
}

/** Keeps a selection in the address, so that it can be sent to somebody. */
export function remember(changes) {
  const address = new URL(location.href);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) address.searchParams.delete(key);
    else address.searchParams.set(key, value);
  }
  history.replaceState(null, "", address);
}

/** JSON from the server, or an error with its words. Waits while another problem is being planned. */
export async function get(address) {
  for (let tries = 0; ; tries += 1) {
    const response = await fetch(address);
    if (response.status === 202 && tries < 400) {
      await new Promise((resolve) => setTimeout(resolve, 300));
      continue;
    }
    const data = await response.json();
    if (!response.ok || response.status === 202) throw new Error(data.error);
    return data;
  }
}
