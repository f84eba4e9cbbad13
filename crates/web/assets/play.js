// An episode under the policy that the dial shows, one decision at a time.

import { add, frame, get, html, narrow, number, percent, remember, standing } from "/assets/draw.js";
import { stepper } from "/assets/stepper.js";

const byId = (id) => document.getElementById(id);
const PAUSE = 700;

/** Connects the buttons. The server plays the whole episode; the browser uncovers it. */
export function player(view) {
  let episode = null;
  let shown = 0;

  async function begin() {
    buttons.stop();
    const seed = Math.max(0, Math.floor(Number(byId("play-seed").value) || 0));
    try {
      episode = await get(`/api/play?${view.query}&${view.shown.play}&seed=${seed}`);
    } catch (error) {
      byId("play-words").textContent = error.message;
      return;
    }
    episode.tau = view.shown.tau;
    shown = 0;
    remember({ seed });
    buttons.show();
    paint();
  }

  const buttons = stepper({
    stepButton: byId("play-step"),
    runButton: byId("play-run"),
    more: () => episode !== null && shown < episode.steps.length,
    step: () => {
      shown += 1;
      paint();
    },
    pause: () => PAUSE,
  });

  function paint() {
    const { data } = view;
    const { steps, target } = episode;
    const over = shown === steps.length;
    const now = steps[Math.min(shown, steps.length - 1)];
    if (over) {
      byId("play-words").textContent =
        `Ended in ${data.states[episode.last]} with ${number(episode.total)}. The target was ${number(target)} ` +
        `(τ = ${number(episode.tau)}): ${episode.reached ? "reached" : "missed"}.`;
    } else {
      byId("play-words").textContent =
        `Period ${now.stage + 1}, state ${data.states[now.state]}: ${number(now.collected)} collected, ` +
        `${standing(now.collected, target, now.chance)}. Chance ${percent(now.chance)}. Next: ${data.actions[now.action]}.`;
    }
    view.map.point?.(now.stage, now.state);
    line(steps.slice(0, shown + 1), over);
    table(data, steps.slice(0, shown));
  }

  function line(steps, over) {
    const svg = byId("play-line");
    byId("play-figure").hidden = false;
    const { scaleX, scaleY } = frame(svg, {
      width: 560, height: 200, x: [1, Math.max(2, view.data.horizon + 1)], y: [0, 1],
      xTitle: "period", yTitle: "chance", yFormat: percent,
    });
    const points = steps.map((turn) => [turn.stage + 1, turn.chance]);
    if (over) points.push([steps.at(-1).stage + 2, episode.reached ? 1 : 0]);
    const path = points.map(([x, y], k) => `${k === 0 ? "M" : "L"}${scaleX(x).toFixed(1)} ${scaleY(y).toFixed(1)}`).join("");
    add(svg, "path", { class: "best", d: path });
    for (const [x, y] of points) add(svg, "circle", { class: "here", cx: scaleX(x), cy: scaleY(y), r: 3.5 });
  }

  function table(data, turns) {
    const place = byId("play-table");
    if (turns.length === 0) return place.replaceChildren();
    const grid = html("table");
    grid.append(html("caption", "Decisions so far"));
    const head = html("tr");
    for (const name of ["period", "state", "action", "reward", "collected", "chance before"]) head.append(html("th", name, { scope: "col" }));
    const thead = html("thead");
    thead.append(head);
    const body = html("tbody");
    for (const turn of turns) {
      const row = html("tr");
      const cells = [turn.stage + 1, data.states[turn.state], data.actions[turn.action], number(turn.reward), number(turn.collected + turn.reward), percent(turn.chance)];
      row.append(...cells.map((text) => html("td", String(text))));
      body.append(row);
    }
    grid.append(thead, body);
    place.replaceChildren(grid);
  }

  byId("play-new").addEventListener("click", () => {
    if (episode) byId("play-seed").value = Number(byId("play-seed").value) + 1;
    begin();
  });
  byId("play-seed").addEventListener("change", begin);
  narrow.addEventListener("change", () => episode && paint());
  const asked = new URLSearchParams(location.search).get("seed");
  if (asked !== null) byId("play-seed").value = asked;
}
