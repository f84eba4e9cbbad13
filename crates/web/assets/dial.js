// The risk dial. All levels arrive in one answer; a turn of the dial only paints.
//
// Two more answers follow: the plans for β > 0, and what the seeds of a run would do. Until they are there, the dial turns without.

import { add, frame, get, html, narrow, number, percent, remember, times } from "/assets/draw.js";
import { mapFigure } from "/assets/map.js";
import { player } from "/assets/play.js";

const MOST_BINS = 72;
/** The shortest time between two looks at a run that learns, and how much longer than the last look it is. */
const PAUSE = 2000;
const PAUSE_FACTOR = 3;
const byId = (id) => document.getElementById(id);
const root = byId("dial");

async function start() {
  if (!root) return;
  const query = root.dataset.query;
  const data = await get(`/api/dial?${query}`);
  root.hidden = false;
  const attained = JSON.parse(root.dataset.attained);
  const asked = new URLSearchParams(location.search);
  const view = { data, query, attained, buffered: null, runs: new Map(), who: "best", cell: null };
  byId("tau").value = Math.round(100 * Number(asked.get("tau") ?? 0.1)) || 10;
  view.law = lawFigure(data);
  view.levels = levelsFigure(view);
  view.map = mapFigure(data, (stage, state) => choose(view, stage, state));
  view.play = player(view);
  fillSelects(view);
  const turn = () => paint(view);
  narrow.addEventListener("change", () => {
    view.law = lawFigure(data);
    view.levels.redraw();
    paint(view);
  });
  byId("tau").addEventListener("input", turn);
  byId("beta").addEventListener("input", turn);
  // The address is written when the dial comes to rest: browsers allow only so many changes a second.
  const rest = () => remember({ tau: byId("tau").value / 100, beta: byId("beta").value / 100 });
  byId("tau").addEventListener("change", rest);
  byId("beta").addEventListener("change", rest);
  byId("who").addEventListener("change", () => {
    view.who = byId("who").value;
    remember({ who: view.who === "best" ? null : view.who });
    paint(view);
  });
  paint(view);
  if (asked.has("stage") && asked.has("state")) await choose(view, Number(asked.get("stage")), Number(asked.get("state")));
  root.dataset.ready = "yes";
  await Promise.all([fetchBuffered(view, asked.get("beta")), fetchRun(view, asked.get("who"))]);
  root.dataset.complete = "yes";
}

/** Fetches the plans for β > 0. */
async function fetchBuffered(view, asked) {
  say(byId("beta-value"), "0 (others are being planned)");
  try {
    const { levels, plans } = await get(`/api/buffered?${view.query}`);
    view.buffered = { levels, plans, taus: [...new Set(levels.map((level) => level.tau))] };
    byId("beta").disabled = false;
    if (asked !== null) byId("beta").value = Math.round(100 * Number(asked));
    // The cell that is shown has no answer for these plans yet.
    if (view.cell) await choose(view, view.cell.stage, view.cell.state);
    paint(view);
  } catch (error) {
    say(byId("beta-value"), `only 0 here: ${error.message}`);
  }
}

/** Fetches what the seeds of a run would do, and again whenever the run has changed. */
async function fetchRun(view, asked) {
  const run = new URLSearchParams(view.query).get("run");
  if (run === null) return;
  const seeds = view.attained.map(({ seed }) => String(seed));
  byId("whose").hidden = false;
  let pause = PAUSE;
  const look = async () => {
    const begun = performance.now();
    for (const seed of seeds) {
      try {
        serve(view, seed, await get(`/api/served?${view.query}&who=${seed}`));
      } catch (error) {
        say(byId("who-note"), error.message);
      }
    }
    pause = Math.max(PAUSE, PAUSE_FACTOR * (performance.now() - begun));
  };
  await look();
  if (view.runs.has(asked)) {
    byId("who").value = asked;
    view.who = asked;
    paint(view);
  }
  let waiting = false;
  const events = new EventSource("/events");
  events.addEventListener("change", (event) => {
    const { changed } = JSON.parse(event.data);
    if (waiting || (changed !== null && !changed.includes(run))) return;
    waiting = true;
    setTimeout(async () => {
      await look();
      waiting = false;
    }, pause);
  });
  addEventListener("pagehide", () => events.close());
}

/** Takes what a seed would do. */
function serve(view, seed, served) {
  if (!view.runs.has(seed)) byId("who").append(html("option", `this run, seed ${seed}`, { value: seed }));
  view.runs.set(seed, served);
  const stride = served.levels.length < 99 ? ` Asked at ${served.levels.length} levels.` : "";
  say(byId("who-note"), `The run after ${served.episodes} episodes.${stride}`);
  view.levels.redraw();
  paint(view);
}

/** The entry of a list whose τ is nearest. */
function nearest(list, tau) {
  return list.reduce((best, entry) => (Math.abs(entry.tau - tau) < Math.abs(best.tau - tau) - 1e-9 ? entry : best));
}

/** What a run serves for a level and a share of it. An agent with one policy has the same one for every β. */
function servedAt(served, tau, share) {
  const own = share > 0 ? served.buffered.filter((each) => each.share === share) : served.levels;
  if (own.length > 0) return nearest(own, tau);
  const here = nearest(served.levels, tau);
  return { ...here, attained: buffered(served.plans[here.plan], here.tau, (share / 100) * here.tau) };
}

/** What is shown at the level of the dial: a policy, its law, and where its quantile is. */
function selected(view) {
  const { data, buffered } = view;
  const level = data.levels[byId("tau").value - 1];
  const share = buffered ? Number(byId("beta").value) : 0;
  const point = { tau: level.tau, level, share, beta: (share / 100) * level.tau };
  const served = view.runs.get(view.who);
  if (served) {
    const here = servedAt(served, level.tau, share);
    const plan = served.plans[here.plan];
    const play = `who=${view.who}&tau=${here.tau}&share=${share}`;
    return { ...point, beta: (share / 100) * here.tau, kind: "run", served, here, plan, quantile: here.quantile, mean: here.mean, play };
  }
  if (share > 0) {
    const { tau } = nearest(buffered.taus.map((each) => ({ tau: each })), level.tau);
    const here = buffered.levels.find((each) => each.tau === tau && each.share === share);
    const plan = buffered.plans[here.plan];
    return { ...point, kind: "buffered", here, plan, quantile: here.quantile, mean: here.mean, play: `buffered=1&plan=${here.plan}` };
  }
  const plan = data.plans[level.plan];
  return { ...point, kind: "best", here: level, plan, quantile: level.best, mean: level.mean, play: `plan=${level.plan}` };
}

/** Paints everything at the level of the dial. Nothing is fetched or planned here. */
function paint(view) {
  const shown = selected(view);
  view.shown = shown;
  say(byId("tau-value"), number(shown.tau));
  if (view.buffered) say(byId("beta-value"), shown.share === 0 ? "0: the point quantile" : `${number(shown.beta)}: ${SHARES[shown.share]} τ`);
  words(view, shown);
  view.law(shown);
  view.levels(shown);
  view.map(shown.plan);
  reservation(view, shown.plan);
  if (view.cell) cellTable(view);
}

const SHARES = { 25: "a quarter of", 50: "half of", 75: "three quarters of", 100: "as large as" };
const PARTS = { 25: "the best quarter", 50: "the better half", 75: "the best three quarters" };

/** "the worst 1 time in 10", or the better part of it. */
function worst(percentLevel, share) {
  const all = `the worst ${times(100 - percentLevel)}`;
  return share === 100 ? `In ${all}` : `Of ${all}, take ${PARTS[share]}: there`;
}

function sentence({ data }, { kind, level, share, here, mean }) {
  const cost = givenUp(data, mean);
  const price = cost === 0
    ? "On average it costs nothing."
    : `On average it costs ${number(cost)}: ${number(mean)} instead of ${number(data.max_mean)}.`;
  if (kind === "run" && share > 0) return `${worst(Math.round(100 * here.tau), share)} this run gets ${number(here.attained)} on average. ${price}`;
  if (kind === "buffered") return `${worst(Math.round(100 * here.tau), share)} you get ${number(here.attained)} on average. ${price}`;
  const often = times(Math.round(100 * here.tau));
  if (kind === "run") {
    const best = data.levels[Math.round(100 * here.tau) - 1].best;
    const beside = here.quantile >= best - 1e-9 * Math.max(1, Math.abs(best)) ? "the best possible" : `at most ${number(best)} is possible`;
    return `${often} this run gets at least ${number(here.quantile)}; ${beside}. ${price}`;
  }
  const bound = data.exact ? "" : " (a lower bound: returns were rounded)";
  return `${often} you get at least ${number(level.best)}${bound}. ${price}`;
}

function words(view, shown) {
  const { data } = view;
  const { level, tau, beta, here } = shown;
  say(byId("sentence"), sentence(view, shown));
  const rows = [
    ["Best quantile", number(level.best)],
    ["Chance to reach it", percent(level.at_least)],
    ["Risk-neutral policy's quantile", number(level.neutral)],
    ["Mean of this policy", number(shown.mean)],
    ["Largest mean", number(data.max_mean)],
    ["Mean given up", number(givenUp(data, shown.mean))],
  ];
  if (beta > 0) {
    const best = shown.kind === "buffered" ? here : nearest(view.buffered.levels.filter(({ share }) => share === shown.share), here.tau);
    const open = best.bound - best.attained > 1e-6 * Math.max(1, Math.abs(best.bound));
    rows.push(["Best mean of the quantiles from τ − β to τ", number(best.attained) + (open ? ` (at most ${number(best.bound)})` : "")]);
    if (shown.kind === "run") rows.push(["The same of this run", number(here.attained)]);
    else {
      const plan = data.plans[level.plan];
      rows.push(["The same of the policy for β = 0", (plan.merged ? "≈ " : "") + number(buffered(plan, tau, beta))]);
    }
  }
  for (const [seed, served] of view.runs) {
    const at = nearest(served.levels, tau);
    const where = at.tau === tau ? "" : ` at τ = ${number(at.tau)}`;
    rows.push([`Quantile of this run, seed ${seed}`, number(at.quantile) + where]);
  }
  for (const { seed, points } of view.attained.filter((each) => !view.runs.has(String(each.seed)))) {
    const at = points.findLast((point) => point[0] <= tau + 1e-9);
    const near = at && (Math.abs(at[0] - tau) < 0.05 - 1e-9 || points.length === 1);
    rows.push([`Attained by seed ${seed}`, near ? `${number(at[1])} at τ = ${number(at[0])}` : "not evaluated here"]);
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

/** What a policy costs in the mean; differences that are rounding are none. */
function givenUp(data, mean) {
  const cost = data.max_mean - mean;
  return cost > 1e-8 * Math.max(1, Math.abs(data.max_mean)) ? cost : 0;
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
  const { scaleX, scaleY, top, bottom, right } = frame(svg, {
    width: 560, height: 300, x: [low, high], y: [0, tallest], xTitle: "total", yTitle: "chance", yFormat: percent,
  });
  const edge = (k) => scaleX(low + (k * (high - low)) / bins).toFixed(1);
  // The law of a run may be taller than that of any plan; the bar then ends at the top.
  const place = (chance) => Math.max(top, scaleY(chance)).toFixed(1);
  const bar = (k, from, to) => (to > from ? `M${edge(k + 0.08)} ${place(from)}V${place(to)}H${edge(k + 0.92)}V${place(from)}z` : "");
  const [missPath, reachPath] = [add(svg, "path", { class: "miss" }), add(svg, "path", { class: "reach" })];
  const outline = Array.from(neutral, (n, k) => `${k === 0 ? "M" : "L"}${edge(k)} ${place(n)}H${edge(k + 1)}`).join("");
  add(svg, "path", { class: "neutral", d: outline });
  const line = add(svg, "line", { class: "quantile", y1: top, y2: bottom });
  const label = add(svg, "text", { class: "tick strong", y: top + 10 });
  return ({ plan, quantile }) => {
    const { miss, reach } = histogram(plan, cut, quantile);
    missPath.setAttribute("d", Array.from(miss, (m, k) => bar(k, 0, m)).join(""));
    reachPath.setAttribute("d", Array.from(reach, (r, k) => bar(k, miss[k], miss[k] + r)).join(""));
    const x = scaleX(quantile);
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    const left = x > 0.7 * right;
    label.setAttribute("x", left ? x - 5 : x + 5);
    label.setAttribute("text-anchor", left ? "end" : "start");
    say(label, `quantile ${number(quantile)}`);
  };
}

/** Best, risk-neutral and attained quantile at every level. */
function levelsFigure(view) {
  const { levels } = view.data;
  const svg = byId("levels");
  let [scales, band, line, dot] = [];
  const draw = () => {
    const points = view.attained.filter(({ seed }) => !view.runs.has(String(seed))).flatMap((seed) => seed.points);
    const runs = [...view.runs.values()].map((served) => served.levels);
    const values = [
      ...levels.flatMap((level) => [level.best, level.neutral]),
      ...points.map((point) => point[1]),
      ...runs.flat().map((level) => level.quantile),
    ];
    scales = frame(svg, {
      width: 560, height: 300, x: [0, 1], y: [Math.min(...values), Math.max(...values)], xTitle: "level τ", yTitle: "quantile",
    });
    const { scaleX, scaleY, top, bottom } = scales;
    band = add(svg, "rect", { class: "window", y: top, height: bottom - top });
    const steps = (list, of) => {
      const half = list.length > 1 ? (list[1].tau - list[0].tau) / 2 : 0.005;
      return list.map((level, k) => {
        const [from, to] = [Math.max(0, level.tau - half), Math.min(1, level.tau + half)];
        return `${k === 0 ? "M" : "L"}${scaleX(from).toFixed(1)} ${scaleY(of(level)).toFixed(1)}H${scaleX(to).toFixed(1)}`;
      }).join("");
    };
    add(svg, "path", { class: "neutral", d: steps(levels, (level) => level.neutral) });
    add(svg, "path", { class: "best", d: steps(levels, (level) => level.best) });
    for (const served of runs) add(svg, "path", { class: "attained", d: steps(served, (level) => level.quantile) });
    for (const [tau, quantile] of points) add(svg, "circle", { class: "attained", cx: scaleX(tau), cy: scaleY(quantile), r: 3 });
    line = add(svg, "line", { class: "quantile", y1: top, y2: bottom });
    dot = add(svg, "circle", { class: "here", r: 5 });
    const green = runs.length ? "; green: this run" : "";
    say(byId("ring-words"), green + (points.length ? "; rings: evaluations of this run" : ""));
  };
  draw();
  const paintLevels = ({ tau, beta, quantile }) => {
    const { scaleX, scaleY } = scales;
    const x = scaleX(tau);
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    dot.setAttribute("cx", x);
    dot.setAttribute("cy", scaleY(quantile));
    band.setAttribute("x", scaleX(tau - beta));
    band.setAttribute("width", x - scaleX(tau - beta));
  };
  paintLevels.redraw = draw;
  return paintLevels;
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

/** Fetches what every action is worth in a cell, for all plans at once, and shows it. Without a stage: the one chosen last, or the first. */
async function choose(view, wanted, state) {
  const { data } = view;
  const row = data.rows.indexOf(state);
  const due = data.stages.filter((_, column) => view.shown.plan.map[column]?.[row] !== ".");
  const last = Number(byId("stage").value);
  const stage = wanted ?? (due.includes(last) ? last : (due[0] ?? last));
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

function cellTable({ data, cell, shown }) {
  const { kind, plan } = shown;
  // The chances of actions do not depend on who plays, but on the target: a run is measured by that of the best plan.
  const here = kind === "buffered" ? cell.buffered[shown.here.plan] : cell.plans[shown.level.plan];
  const place = `Period ${cell.stage + 1}, state ${data.states[cell.state]}`;
  if (!here) {
    byId("cell").replaceChildren(html("p", `${place}: nothing is decided here.`));
    return;
  }
  const target = kind === "buffered" ? plan.target : data.plans[shown.level.plan].target;
  const best = here.actions.reduce((a, b) => (b[1] > a[1] + 1e-12 ? b : a));
  const chosen = here.actions.find(([action]) => action === here.action) ?? best;
  let text =
    `${place}, ${number(here.collected)} collected so far: the plan says ${data.actions[here.action]}. ` +
    `The chance to end with at least ${number(target)} is ${percent(chosen[1])}` +
    (chosen[1] < best[1] - 1e-9 ? `; ${data.actions[best[0]]} would make it ${percent(best[1])} at the price of a lower mean.` : ".");
  if (kind === "run") {
    const letter = plan.map[data.stages.indexOf(cell.stage)]?.[data.rows.indexOf(cell.state)] ?? ".";
    text += letter === "." ? " This run does not decide here." : ` This run says ${data.actions[parseInt(letter, 36)]}.`;
  }
  const summary = html("p", text);
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
