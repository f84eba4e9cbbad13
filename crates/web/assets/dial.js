// The risk dial. All levels arrive in one answer; a turn of the dial only paints.

import { add, colour, frame, get, html, ink, letters, number, percent, remember, times } from "/assets/draw.js";
import { player } from "/assets/play.js";

const MOST_BINS = 72;
const byId = (id) => document.getElementById(id);
const root = byId("dial");

async function start() {
  if (!root) return;
  const query = root.dataset.query;
  const data = await get(`/api/dial?${query}`);
  root.hidden = false;
  const attained = JSON.parse(root.dataset.attained);
  const asked = new URLSearchParams(location.search);
  const view = { data, query, attained, cell: null };
  byId("tau").value = Math.round(100 * Number(asked.get("tau") ?? 0.1)) || 10;
  byId("beta").value = Math.round(100 * Number(asked.get("beta") ?? 0));
  view.law = lawFigure(data);
  view.levels = levelsFigure(data, attained);
  view.map = mapFigure(data, (stage, state) => choose(view, stage, state));
  view.play = player(view);
  fillSelects(view);
  const turn = () => paint(view);
  byId("tau").addEventListener("input", turn);
  byId("beta").addEventListener("input", turn);
  // The address is written when the dial comes to rest: browsers allow only so many changes a second.
  const rest = () => remember({ tau: byId("tau").value / 100, beta: byId("beta").value / 100 });
  byId("tau").addEventListener("change", rest);
  byId("beta").addEventListener("change", rest);
  paint(view);
  if (asked.has("stage") && asked.has("state")) await choose(view, Number(asked.get("stage")), Number(asked.get("state")));
  root.dataset.ready = "yes";
}

/** Paints everything at the level of the dial. Nothing is fetched or planned here. */
function paint(view) {
  const { data } = view;
  const level = data.levels[byId("tau").value - 1];
  const plan = data.plans[level.plan];
  const beta = (byId("beta").value / 100) * level.tau;
  view.level = level;
  say(byId("tau-value"), number(level.tau));
  say(byId("beta-value"), beta === 0 ? "0: the point quantile" : number(beta));
  words(view, level, plan, beta);
  view.law(level, plan);
  view.levels(level, beta);
  view.map(plan);
  reservation(view, plan);
  if (view.cell) cellTable(view);
}

function words(view, level, plan, beta) {
  const { data } = view;
  const bound = data.exact ? "" : " (a lower bound: returns were rounded)";
  say(
    byId("sentence"),
    `${times(Math.round(100 * level.tau))} you get at least ${number(level.best)}${bound}. ` +
      (givenUp(data, level) === 0
        ? "On average it costs nothing."
        : `On average it costs ${number(givenUp(data, level))}: ${number(level.mean)} instead of ${number(data.max_mean)}.`),
  );
  const rows = [
    ["Best quantile", number(level.best)],
    ["Chance to reach it", percent(level.at_least)],
    ["Risk-neutral policy's quantile", number(level.neutral)],
    ["Mean of this policy", number(level.mean)],
    ["Largest mean", number(data.max_mean)],
    ["Mean given up", number(givenUp(data, level))],
  ];
  if (beta > 0) {
    const roughly = plan.merged ? "≈ " : "";
    rows.push(["Buffered quantile: mean of the quantiles from τ − β to τ", roughly + number(buffered(plan, level.tau, beta))]);
  }
  for (const { seed, points } of view.attained) {
    const at = points.findLast(([tau]) => tau <= level.tau + 1e-9);
    const here = at && (Math.abs(at[0] - level.tau) < 0.05 - 1e-9 || points.length === 1);
    rows.push([`Attained by seed ${seed}`, here ? `${number(at[1])} at τ = ${number(at[0])}` : "not evaluated here"]);
  }
  const list = byId("numbers");
  while (list.children.length > rows.length) list.lastChild.remove();
  rows.forEach(([name, value], index) => {
    const group = list.children[index] ?? list.appendChild(html("div"));
    if (!group.firstChild) group.append(html("dt"), html("dd"));
    say(group.firstChild, name);
    say(group.lastChild, value);
  });
}

/** Changes a text only if it differs: what stays needs no new layout. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** What the level costs in the mean; differences that are rounding are none. */
function givenUp(data, level) {
  const cost = data.max_mean - level.mean;
  return cost > 1e-9 * Math.max(1, Math.abs(data.max_mean)) ? cost : 0;
}

/** (1/β) ∫ of the quantile function from τ − β to τ. */
function buffered({ values, probabilities }, tau, beta) {
  let [sum, below] = [0, 0];
  for (let k = 0; k < values.length; k += 1) {
    const above = k === values.length - 1 ? Math.max(1, below + probabilities[k]) : below + probabilities[k];
    const overlap = Math.min(above, tau) - Math.max(below, tau - beta);
    if (overlap > 0) sum += overlap * values[k];
    below = above;
  }
  return sum / beta;
}

/** Bins of equal width. If the totals lie on a grid, every bin has equally many of its points, in the middle. */
function binning(seen) {
  const sorted = [...new Set(seen)].sort((a, b) => a - b);
  const [low, high] = [sorted[0], sorted.at(-1)];
  const gaps = sorted.slice(1).map((value, k) => value - sorted[k]).filter((gap) => gap > 1e-7 * (high - low));
  const grid = gaps.length ? Math.min(...gaps) : high - low || 1;
  const points = Math.round((high - low) / grid) + 1;
  const onGrid = points < 20 * MOST_BINS && sorted.every((value) => Math.abs((value - low) / grid - Math.round((value - low) / grid)) < 0.01);
  if (!onGrid) return { low, high, bins: MOST_BINS };
  const each = Math.ceil(points / MOST_BINS);
  const bins = Math.ceil(points / each);
  return { low: low - grid / 2, high: low + (bins * each - 0.5) * grid, bins };
}

/** Chances by bins of the return, below and from the target on. */
function histogram({ values, probabilities }, { low, high, bins }, target) {
  const [miss, reach] = [new Float64Array(bins), new Float64Array(bins)];
  for (let k = 0; k < values.length; k += 1) {
    const bin = Math.min(bins - 1, Math.max(0, Math.floor(((values[k] - low) / (high - low)) * bins)));
    (values[k] < target - 1e-7 * (high - low) ? miss : reach)[bin] += probabilities[k];
  }
  return { miss, reach };
}

function lawFigure(data) {
  const laws = [...data.plans, data.neutral];
  const seen = laws.flatMap(({ values, probabilities }) => values.filter((_, k) => probabilities[k] > 1e-5));
  const cut = binning(seen);
  const { low, high, bins } = cut;
  const counted = data.plans.map((plan) => histogram(plan, cut, plan.target));
  const neutral = histogram(data.neutral, cut, Infinity).miss;
  const tallest = Math.max(...neutral, ...counted.flatMap(({ miss, reach }) => Array.from(miss, (m, k) => m + reach[k])));
  const svg = byId("law");
  const { scaleX, scaleY, top, bottom } = frame(svg, {
    width: 560, height: 300, x: [low, high], y: [0, tallest], xTitle: "total", yTitle: "chance", yFormat: percent,
  });
  const edge = (k) => scaleX(low + (k * (high - low)) / bins).toFixed(1);
  const bar = (k, from, to) =>
    to > from ? `M${edge(k + 0.08)} ${scaleY(from).toFixed(1)}V${scaleY(to).toFixed(1)}H${edge(k + 0.92)}V${scaleY(from).toFixed(1)}z` : "";
  const paths = counted.map(({ miss, reach }) => [
    Array.from(miss, (m, k) => bar(k, 0, m)).join(""),
    Array.from(reach, (r, k) => bar(k, miss[k], miss[k] + r)).join(""),
  ]);
  const [missPath, reachPath] = [add(svg, "path", { class: "miss" }), add(svg, "path", { class: "reach" })];
  const outline = Array.from(neutral, (n, k) => `${k === 0 ? "M" : "L"}${edge(k)} ${scaleY(n).toFixed(1)}H${edge(k + 1)}`).join("");
  add(svg, "path", { class: "neutral", d: outline });
  const line = add(svg, "line", { class: "quantile", y1: top, y2: bottom });
  const label = add(svg, "text", { class: "tick strong", y: top + 10 });
  return (level) => {
    missPath.setAttribute("d", paths[level.plan][0]);
    reachPath.setAttribute("d", paths[level.plan][1]);
    const x = scaleX(level.best);
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    const left = x > 400;
    label.setAttribute("x", left ? x - 5 : x + 5);
    label.setAttribute("text-anchor", left ? "end" : "start");
    say(label, `quantile ${number(level.best)}`);
  };
}

function levelsFigure(data, attained) {
  const { levels } = data;
  const points = attained.flatMap((seed) => seed.points);
  const values = [...levels.flatMap((level) => [level.best, level.neutral]), ...points.map((point) => point[1])];
  const svg = byId("levels");
  const { scaleX, scaleY, top, bottom } = frame(svg, {
    width: 560, height: 300, x: [0, 1], y: [Math.min(...values), Math.max(...values)], xTitle: "level τ", yTitle: "quantile",
  });
  const band = add(svg, "rect", { class: "window", y: top, height: bottom - top });
  const steps = (of) => levels.map((level, k) => {
    const [from, to] = [Math.max(0, level.tau - 0.005), level.tau + 0.005];
    return `${k === 0 ? "M" : "L"}${scaleX(from).toFixed(1)} ${scaleY(of(level)).toFixed(1)}H${scaleX(to).toFixed(1)}`;
  }).join("");
  add(svg, "path", { class: "neutral", d: steps((level) => level.neutral) });
  add(svg, "path", { class: "best", d: steps((level) => level.best) });
  for (const [tau, quantile] of points) add(svg, "circle", { class: "attained", cx: scaleX(tau), cy: scaleY(quantile), r: 3 });
  const line = add(svg, "line", { class: "quantile", y1: top, y2: bottom });
  const dot = add(svg, "circle", { class: "here", r: 5 });
  if (points.length) byId("ring-words").textContent = "; rings: this run";
  return (level, beta) => {
    const x = scaleX(level.tau);
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    dot.setAttribute("cx", x);
    dot.setAttribute("cy", scaleY(level.best));
    band.setAttribute("x", scaleX(level.tau - beta));
    band.setAttribute("width", x - scaleX(level.tau - beta));
  };
}

function mapFigure(data, clicked) {
  const { stages, rows, states, actions } = data;
  const svg = byId("map");
  const drawable = data.plans.every((plan) => plan.map.length === stages.length);
  if (!drawable) {
    svg.remove();
    byId("map-note").textContent = `The map is left out: it has no colours for ${actions.length} actions.`;
    return () => {};
  }
  // The first state is at the bottom, as on an axis.
  const short = letters(actions);
  const wide = Math.max(5, Math.min(44, Math.floor(820 / stages.length)));
  const high = Math.max(5, Math.min(22, Math.floor(560 / rows.length)));
  const longest = Math.max(...rows.map((state) => states[state].length));
  const left = Math.min(150, 24 + 7 * longest);
  const bottom = rows.length * high + 4;
  const [width, height] = [left + stages.length * wide + 6, bottom + 40];
  for (const [key, value] of Object.entries({ viewBox: `0 0 ${width} ${height}`, width, height })) svg.setAttribute(key, value);
  const cells = [];
  const lettered = wide >= 14 && high >= 12;
  stages.forEach((stage, column) => {
    rows.forEach((state, row) => {
      const [x, y] = [left + column * wide, bottom - (row + 1) * high];
      const rect = add(svg, "rect", { x, y, width: wide - 1, height: high - 1, class: "cell" });
      rect.dataset.stage = stage;
      rect.dataset.state = state;
      const text = lettered ? add(svg, "text", { x: x + wide / 2 - 0.5, y: y + high / 2 + 3.5, class: "letter" }) : null;
      cells.push({ rect, text, column, row, action: null });
    });
  });
  const everyRow = Math.ceil(14 / high);
  rows.forEach((state, row) => {
    if (row % everyRow === 0) add(svg, "text", { x: left - 5, y: bottom - row * high - high / 2 + 4, class: "tick end" }, states[state]);
  });
  const everyStage = Math.ceil(26 / wide);
  stages.forEach((stage, column) => {
    if (column % everyStage === 0) add(svg, "text", { x: left + (column + 0.5) * wide, y: bottom + 14, class: "tick middle" }, String(stage + 1));
  });
  add(svg, "text", { x: left + (stages.length * wide) / 2, y: bottom + 31, class: "tick middle" }, "period");
  const mark = add(svg, "rect", { class: "mark", width: wide + 1, height: high + 1, visibility: "hidden" });
  svg.addEventListener("click", (event) => {
    const { stage, state } = event.target.dataset;
    if (stage !== undefined) clicked(Number(stage), Number(state));
  });
  byId("legend").replaceChildren(
    ...actions.map((name, action) => {
      const item = html("li");
      const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      swatch.setAttribute("width", 14);
      swatch.setAttribute("height", 14);
      swatch.setAttribute("aria-hidden", "true");
      add(swatch, "rect", { width: 14, height: 14, fill: colour(action, actions.length) });
      item.append(swatch, lettered && short[action] !== name ? ` ${short[action]}: ${name}` : ` ${name}`);
      return item;
    }),
  );
  const paintMap = (plan) => {
    for (const cell of cells) {
      const letter = plan.map[cell.column][cell.row];
      if (letter === cell.action) continue;
      cell.action = letter;
      const action = letter === "." ? -1 : parseInt(letter, 36);
      cell.rect.setAttribute("fill", action < 0 ? "none" : colour(action, actions.length));
      if (!cell.text) continue;
      cell.text.textContent = action < 0 ? "" : short[action];
      cell.text.setAttribute("fill", action < 0 ? "none" : ink(action, actions.length));
    }
    const at = plan.at_zero ? "" : ", at the most likely amount collected so far";
    say(byId("map-note"), `The policy by period and state${at}. Empty: nothing is decided there.`);
  };
  paintMap.point = (stage, state) => {
    const [column, row] = [stages.indexOf(stage), rows.indexOf(state)];
    mark.setAttribute("visibility", column < 0 || row < 0 ? "hidden" : "visible");
    mark.setAttribute("x", left + column * wide - 1);
    mark.setAttribute("y", bottom - (row + 1) * high - 1);
  };
  return paintMap;
}

/** Where the action changes once along the states, the level at which it does: one per period. */
function reservation({ data }, plan) {
  const place = byId("reservation");
  if (!data.ordered || data.actions.length !== 2 || plan.map.length === 0 || !plan.at_zero) {
    place.replaceChildren();
    return;
  }
  const found = plan.map.map((column) => {
    const at = [...column].map((letter, row) => ({ letter, row })).filter(({ letter }) => letter !== ".");
    const changes = at.filter(({ letter }, k) => k > 0 && letter !== at[k - 1].letter);
    return changes.length === 1 ? { action: parseInt(changes[0].letter, 36), state: data.states[data.rows[changes[0].row]] } : null;
  });
  if (found.filter(Boolean).length < 2) {
    place.replaceChildren();
    return;
  }
  const parts = [];
  found.forEach((level, column) => {
    if (!level) return;
    const words = `${data.actions[level.action]} from ${level.state}`;
    const last = parts.at(-1);
    if (last && last.words === words && last.to === column) last.to = column + 1;
    else parts.push({ words, from: column, to: column + 1 });
  });
  const period = ({ from, to }) => {
    const [first, last] = [data.stages[from] + 1, data.stages[to - 1] + 1];
    return first === last ? `period ${first}` : `periods ${first} to ${last}`;
  };
  const text = `Reservation levels: ${parts.map((part) => `${part.words} in ${period(part)}`).join(", ")}.`;
  if (place.textContent !== text) place.replaceChildren(html("p", text));
}

function fillSelects(view) {
  const { data } = view;
  const option = (value, text) => html("option", text, { value });
  byId("stage").replaceChildren(...data.stages.map((stage) => option(stage, String(stage + 1))));
  byId("state").replaceChildren(...data.rows.map((state) => option(state, data.states[state])));
  const chosen = () => choose(view, Number(byId("stage").value), Number(byId("state").value));
  byId("stage").addEventListener("change", chosen);
  byId("state").addEventListener("change", chosen);
}

/** Fetches what every action is worth in a cell, for all plans at once, and shows it. */
async function choose(view, stage, state) {
  byId("stage").value = stage;
  byId("state").value = state;
  view.map.point?.(stage, state);
  remember({ stage, state });
  try {
    view.cell = await get(`/api/cell?${view.query}&stage=${stage}&state=${state}`);
    cellTable(view);
  } catch (error) {
    view.cell = null;
    byId("cell").replaceChildren(html("p", error.message));
  }
}

function cellTable({ data, cell, level }) {
  const here = cell.plans[level.plan];
  const place = `Period ${cell.stage + 1}, state ${data.states[cell.state]}`;
  if (!here) {
    byId("cell").replaceChildren(html("p", `${place}: nothing is decided here.`));
    return;
  }
  const target = data.plans[level.plan].target;
  const best = here.actions.reduce((a, b) => (b[1] > a[1] + 1e-12 ? b : a));
  const chosen = here.actions.find(([action]) => action === here.action) ?? best;
  const summary = html(
    "p",
    `${place}, ${number(here.collected)} collected so far: the plan says ${data.actions[here.action]}. ` +
      `The chance to end with at least ${number(target)} is ${percent(chosen[1])}` +
      (chosen[1] < best[1] - 1e-9 ? `; ${data.actions[best[0]]} would make it ${percent(best[1])} at the price of a lower mean.` : "."),
  );
  const table = html("table");
  const head = html("tr");
  for (const name of ["action", "chance to reach the target", "expected total"]) head.append(html("th", name, { scope: "col" }));
  const thead = html("thead");
  thead.append(head);
  const body = html("tbody");
  for (const [action, chance, mean] of here.actions) {
    const row = html("tr", "", action === here.action ? { class: "chosen" } : {});
    const bar = html("meter", "", { min: 0, max: 1, value: chance, "aria-label": `chance with ${data.actions[action]}` });
    const cellOfChance = html("td");
    cellOfChance.append(bar, ` ${percent(chance)}`);
    row.append(html("th", data.actions[action] + (action === here.action ? " (the plan)" : ""), { scope: "row" }), cellOfChance, html("td", number(mean)));
    body.append(row);
  }
  table.append(thead, body);
  const note = html("p", "Chance: if the target is all that counts from here on. Expected total: if the mean is all that counts after this action.", { class: "muted" });
  byId("cell").replaceChildren(summary, table, note);
}

start().catch((error) => {
  root.hidden = false;
  root.replaceChildren(html("p", error.message, { class: "note" }));
});
