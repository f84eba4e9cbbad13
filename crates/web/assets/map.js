// The policy map: periods and states, or the map of a grid world. Colours and arrows are those of reports.

import { add, html, ink, letters } from "/assets/draw.js";

const byId = (id) => document.getElementById(id);

/** Draws the map once; returns the function that paints a plan, with `point` to mark a cell. */
export function mapFigure(data, clicked) {
  if (!data.plans.every((plan) => plan.map.length === data.stages.length)) {
    byId("map").remove();
    byId("map-note").textContent = `The map is left out: it has no colours for ${data.actions.length} actions.`;
    return () => {};
  }
  byId("map").addEventListener("click", (event) => {
    const { stage, state } = event.target.dataset;
    if (state !== undefined) clicked(stage === undefined ? null : Number(stage), Number(state));
  });
  return data.grid ? gridMap(data) : tableMap(data);
}

function size(svg, width, height) {
  for (const [key, value] of Object.entries({ viewBox: `0 0 ${width} ${height}`, width, height })) svg.setAttribute(key, value);
}

function legend(data, name) {
  byId("legend").replaceChildren(
    ...data.actions.map((_, action) => {
      const item = html("li");
      const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      size(swatch, 14, 14);
      swatch.setAttribute("aria-hidden", "true");
      add(swatch, "rect", { width: 14, height: 14, fill: data.colours[action] });
      item.append(swatch, ` ${name(action)}`);
      return item;
    }),
  );
}

/** The action that a letter of a map stands for; −1 where nothing is decided. */
const actionOf = (letter) => (letter === "." ? -1 : parseInt(letter, 36));

/** Periods from left to right, the first state at the bottom, as on an axis. */
function tableMap(data) {
  const { stages, rows, states, actions, colours } = data;
  const svg = byId("map");
  const short = letters(actions);
  const wide = Math.max(5, Math.min(44, Math.floor(820 / stages.length)));
  const high = Math.max(5, Math.min(22, Math.floor(560 / rows.length)));
  const longest = Math.max(...rows.map((state) => states[state].length));
  const left = Math.min(150, 24 + 7 * longest);
  const bottom = rows.length * high + 4;
  size(svg, left + stages.length * wide + 6, bottom + 40);
  const cells = [];
  const lettered = wide >= 14 && high >= 12;
  stages.forEach((stage, column) => {
    rows.forEach((state, row) => {
      const [x, y] = [left + column * wide, bottom - (row + 1) * high];
      const rect = add(svg, "rect", { x, y, width: wide - 1, height: high - 1, class: "cell" });
      rect.dataset.stage = stage;
      rect.dataset.state = state;
      cells.push({ rect, x: x + wide / 2 - 0.5, y: y + high / 2 + 3.5, texts: new Map(), text: null, column, row, action: null });
    });
  });
  const above = add(svg, "g");
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
  legend(data, (action) => (lettered && short[action] !== actions[action] ? `${short[action]}: ${actions[action]}` : actions[action]));
  // Every letter that a cell has had stays, hidden or shown. To change the letter itself would need a new layout: half of a turn.
  const write = (cell, action) => {
    cell.text?.setAttribute("visibility", "hidden");
    cell.text = null;
    if (action < 0) return;
    if (!cell.texts.has(action)) {
      const text = add(above, "text", { x: cell.x, y: cell.y, class: "letter", fill: ink(colours[action]) }, short[action]);
      cell.texts.set(action, text);
    }
    cell.text = cell.texts.get(action);
    cell.text.setAttribute("visibility", "visible");
  };
  const paint = (plan) => {
    for (const cell of cells) {
      const letter = plan.map[cell.column][cell.row];
      if (letter === cell.action) continue;
      cell.action = letter;
      const action = actionOf(letter);
      cell.rect.setAttribute("fill", action < 0 ? "none" : colours[action]);
      if (lettered) write(cell, action);
    }
    note(plan, "The policy by period and state", "Empty: nothing is decided there.");
  };
  paint.point = (stage, state) => {
    const [column, row] = [stages.indexOf(stage), rows.indexOf(state)];
    mark.setAttribute("visibility", column < 0 || row < 0 ? "hidden" : "visible");
    mark.setAttribute("x", left + column * wide - 1);
    mark.setAttribute("y", bottom - (row + 1) * high - 1);
  };
  return paint;
}

/** The cells of a grid world in their places, each with the action of most periods. */
function gridMap(data) {
  const { columns, letters: names, arrows } = data.grid;
  const { actions, colours } = data;
  const svg = byId("map");
  const height = names.length / columns;
  const side = Math.max(16, Math.min(64, Math.floor(760 / columns), Math.floor(480 / height)));
  size(svg, columns * side + 2, height * side + 2);
  // Cells of at least 20 pixels can be read in a narrow window, too; a wider map scrolls.
  if (columns <= 16) svg.classList.add("fits");
  const place = (cell) => [1 + (cell % columns) * side, 1 + Math.floor(cell / columns) * side];
  const cells = names.map((name, cell) => {
    const [x, y] = place(cell);
    const decided = data.rows.includes(cell);
    const rect = add(svg, "rect", { x, y, width: side, height: side, class: decided ? "cell grid" : "hatch grid" });
    if (decided) rect.dataset.state = cell;
    // Half of the side is the reach of an arrow in a report, too.
    const middle = `translate(${x + side / 2} ${y + side / 2}) scale(${0.3 * side})`;
    const arrow = add(svg, "path", { class: "arrow", transform: middle, "stroke-width": 1 / 6 });
    const dot = add(svg, "circle", { class: "dot", cx: x + side * 0.84, cy: y + side * 0.16, r: side * 0.06, visibility: "hidden" });
    if (name && decided) add(svg, "text", { class: "letter", x: x + side * 0.15, y: y + side * 0.3 }, name);
    else if (name) add(svg, "text", { class: "letter named", x: x + side / 2, y: y + side * 0.68 }, name);
    return { rect, arrow, dot, action: null, changes: null };
  });
  const mark = add(svg, "rect", { class: "mark", width: side, height: side, visibility: "hidden" });
  legend(data, (action) => actions[action]);
  const paint = (plan) => {
    const [usual, changes] = plan.usual;
    cells.forEach((cell, index) => {
      if (cell.action !== usual[index]) {
        cell.action = usual[index];
        const action = actionOf(usual[index]);
        if (action >= 0) cell.rect.setAttribute("fill", colours[action]);
        else cell.rect.removeAttribute("fill");
        cell.arrow.setAttribute("d", arrows[action] ?? "");
        cell.arrow.setAttribute("stroke", action < 0 ? "none" : ink(colours[action]));
      }
      if (cell.changes !== changes[index]) {
        cell.changes = changes[index];
        cell.dot.setAttribute("visibility", changes[index] === "1" ? "visible" : "hidden");
      }
    });
    note(plan, "Each cell shows the action of most periods", "A dot marks cells where it changes over time. Nothing is decided in dark cells.");
  };
  paint.point = (_, state) => {
    const [x, y] = place(state);
    mark.setAttribute("visibility", "visible");
    mark.setAttribute("x", x);
    mark.setAttribute("y", y);
  };
  return paint;
}

function note(plan, what, rest) {
  const at = plan.at_zero ? "" : ", at the most likely amount collected so far";
  const text = `${what}${at}. ${rest}`;
  if (byId("map-note").textContent !== text) byId("map-note").textContent = text;
}
