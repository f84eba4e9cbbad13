// A game, uncovered position by position. The server has played it to its end.

import { add, frame, get, html, narrow, number, percent, remember, standing } from "/assets/draw.js";
import { stepper } from "/assets/stepper.js";

const CELL = 32;
const SIDE = 10;
const byId = (id) => document.getElementById(id);
const root = byId("game");
let played = null;
let at = 0;
let cells = [];
let line = null;
let buttons = null;

async function fetchGame() {
  buttons.stop();
  const seed = Math.max(0, Math.floor(Number(byId("seed").value) || 0));
  const tau = byId("tau").value / 100;
  try {
    played = await get(`/api/game?${root.dataset.query}&tau=${tau}&seed=${seed}`);
  } catch (error) {
    byId("words").textContent = error.message;
    played = null;
    buttons.show();
    byId("at").disabled = true;
    return;
  }
  byId("level").hidden = !played.every_level;
  remember({ seed, tau: played.every_level ? tau : null });
  at = 0;
  byId("at").max = played.positions.length - 1;
  drawBoard();
  line = drawLine();
  buttons.show();
  paint();
}

function drawBoard() {
  const svg = byId("board");
  for (const child of [...svg.children].slice(1)) child.remove();
  const size = SIDE * CELL;
  for (const [key, value] of Object.entries({ viewBox: `0 0 ${size} ${size}`, width: size, height: size })) svg.setAttribute(key, value);
  add(svg, "rect", { width: size, height: size, fill: "#08090e" });
  cells = Array.from({ length: SIDE * SIDE }, (_, cell) => {
    const [x, y] = [(cell % SIDE) * CELL, Math.floor(cell / SIDE) * CELL];
    add(svg, "rect", { x: x + 1, y: y + 1, width: CELL - 2, height: CELL - 2, fill: "#181a24" });
    return { x, y, rect: add(svg, "rect", { visibility: "hidden" }), glyph: " " };
  });
  byId("looks").replaceChildren(
    ...played.looks.map((look) => {
      const item = html("li");
      const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      for (const [key, value] of Object.entries({ width: 14, height: 14, "aria-hidden": "true" })) swatch.setAttribute(key, value);
      add(swatch, "rect", { width: 14, height: 14, fill: look.colour, class: "swatch" });
      item.append(swatch, ` ${look.name}`);
      return item;
    }),
  );
}

/** The chance to reach the target; without a target, the score. */
function drawLine() {
  const { positions, target } = played;
  const value = (position) => (target === null ? position.score : position.chance);
  const values = positions.map(value);
  byId("line-words").textContent = target === null ? "The score" : `The run's own estimate of its chance to reach ${number(target)}`;
  const y = target === null ? [Math.min(0, ...values), Math.max(1, ...values)] : [0, 1];
  const { scaleX, scaleY } = frame(byId("line"), {
    width: 560, height: 320, x: [0, Math.max(1, positions.length - 1)], y,
    xTitle: "step", yTitle: target === null ? "score" : "chance", yFormat: target === null ? number : percent,
  });
  const points = values.map((each, k) => `${scaleX(k).toFixed(1)} ${scaleY(each).toFixed(1)}`);
  const path = add(byId("line"), "path", { class: "best" });
  const dot = add(byId("line"), "circle", { class: "here", r: 4 });
  return () => {
    path.setAttribute("d", `M${points.slice(0, at + 1).join("L")}`);
    dot.setAttribute("cx", scaleX(at));
    dot.setAttribute("cy", scaleY(values[at]));
  };
}

function paint() {
  const { positions, looks, actions, target, over } = played;
  const now = positions[at];
  const end = at === positions.length - 1;
  const glyphs = new Map(looks.map((look) => [look.glyph, look]));
  [...now.cells].forEach((glyph, index) => {
    const cell = cells[index];
    if (cell.glyph === glyph) return;
    cell.glyph = glyph;
    const look = glyphs.get(glyph);
    cell.rect.setAttribute("visibility", look ? "visible" : "hidden");
    if (!look) return;
    const margin = look.faint ? CELL / 3 : 1;
    const place = { x: cell.x + margin, y: cell.y + margin, width: CELL - 2 * margin, height: CELL - 2 * margin, fill: look.colour };
    for (const [key, value] of Object.entries(place)) cell.rect.setAttribute(key, value);
  });
  const action = now.action === null ? "" : `, ${actions[now.action]}`;
  let words = `Step ${at} of ${positions.length - 1}${action}: score ${number(now.score)}.`;
  if (target !== null) {
    const done = end && over;
    const reached = now.collected >= target - 1e-9 * (1 + Math.abs(target)) ? 1 : 0;
    const where = standing(now.collected, target, done ? reached : now.chance);
    words += ` ${where[0].toUpperCase()}${where.slice(1)}${done ? "." : `; chance ${percent(now.chance)}.`}`;
  }
  if (end) words += over ? " The game is over." : " The rest of this game is not shown.";
  if (played.trained && at === 0) words += ` The run was trained for ${played.trained[0]} episodes.`;
  byId("words").textContent = words;
  byId("at").value = at;
  byId("at").disabled = false;
  line();
}

async function start() {
  if (!root) return;
  buttons = stepper({
    stepButton: byId("step"),
    runButton: byId("run"),
    more: () => played !== null && at < played.positions.length - 1,
    step: () => {
      at += 1;
      paint();
    },
    pause: () => 1000 / Number(byId("speed").value),
  });
  const asked = new URLSearchParams(location.search);
  byId("tau").value = Math.round(100 * Number(asked.get("tau") ?? 0.1)) || 10;
  if (asked.has("seed")) byId("seed").value = asked.get("seed");
  const level = () => (byId("tau-value").textContent = number(byId("tau").value / 100));
  level();
  byId("tau").addEventListener("input", level);
  byId("tau").addEventListener("change", fetchGame);
  byId("seed").addEventListener("change", fetchGame);
  byId("new").addEventListener("click", () => {
    byId("seed").value = Number(byId("seed").value) + 1;
    fetchGame();
  });
  byId("speed").addEventListener("change", buttons.again);
  byId("at").addEventListener("input", () => {
    at = Number(byId("at").value);
    buttons.stop();
    paint();
  });
  narrow.addEventListener("change", () => {
    if (!played) return;
    line = drawLine();
    line();
  });
  root.hidden = false;
  await fetchGame();
  root.dataset.ready = "yes";
}

start();
