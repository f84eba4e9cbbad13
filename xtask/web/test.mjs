// The live page in a real Chromium: node test.mjs BQRL CHROMIUM
//
// A real run is trained while the page is open. Every page is checked for errors in the console and by axe-core, and
// screenshots are left in screenshots/ to be looked at.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { cpus, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [, , bqrl, executablePath] = process.argv;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const shots = join(process.cwd(), "screenshots");
mkdirSync(shots, { recursive: true });
const directory = mkdtempSync(join(tmpdir(), "bqrl-web-"));
const children = [];
const errors = [];

function start(...parameters) {
  const child = spawn(bqrl, parameters, { cwd: directory, stdio: ["ignore", "pipe", "ignore"] });
  children.push(child);
  return child;
}

function train(out, ...parameters) {
  const done = spawnSync(bqrl, ["train", "--out", out, "--quiet", ...parameters], { cwd: directory });
  assert.equal(done.status, 0, String(done.stderr));
}

async function serve() {
  const child = start("serve", ".", "--port", "0");
  return new Promise((resolve, reject) => {
    child.stdout.once("data", (text) => resolve(/listening on (http:\S+)/.exec(text)[1]));
    child.once("exit", (code) => reject(new Error(`bqrl serve ended with ${code}`)));
  });
}

async function accessible(page, name) {
  // Evaluated by the driver, so the page's content security policy stays as it is.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  const words = serious.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`);
  assert.deepEqual(words, [], `axe-core on ${name}`);
}

async function shot(page, name, options = {}) {
  await page.evaluate(() => scrollTo(0, 0));
  await page.screenshot({ path: join(shots, `${name}.png`), fullPage: true, ...options });
}

async function step(name, work) {
  const begun = performance.now();
  await work();
  console.log(`ok  ${name} (${((performance.now() - begun) / 1000).toFixed(1)} s)`);
}

async function main(browser) {
  train("runs/first", "asset-selling", "--algo", "qr-dqn", "--tau", "0.1,0.5", "--episodes", "100", "--seeds", "1,2");
  train("runs/second", "asset-selling", "--algo", "ppo", "--tau", "0.1,0.5", "--episodes", "60", "--seeds", "1,2");
  const address = await serve();
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  const requests = [];
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(String(error)));
  // The icon is fetched whenever the browser likes.
  page.on("request", (request) => request.url().endsWith("icon.svg") || requests.push(request.url()));

  // The plans for β > 0, and the policies of a run, arrive after the dial can be turned.
  const complete = () => page.locator("#dial[data-complete]").waitFor({ timeout: 120000 });

  await step("an overview lists the runs", async () => {
    await page.goto(address);
    assert.equal(await page.locator("tr[data-run]").count(), 2);
    await accessible(page, "the overview");
  });

  await step("a run that is started appears and moves", async () => {
    await page.locator("input[value='runs/first']").check();
    const training = start("train", "asset-selling", "--algo", "target-tracking", "--episodes", "100000", "--seeds", "1", "--out", "runs/live", "--quiet");
    const row = page.locator("tr[data-run='runs/live']");
    await row.locator(".running").waitFor({ timeout: 30000 });
    assert.ok(await page.locator("input[value='runs/first']").isChecked(), "the selection survives an update");
    await page.goto(`${address}/runs/runs/live`);
    const far = () => page.evaluate(() => Number(/(\d+) of 100000 episodes/.exec(document.body.textContent)?.[1] ?? 0));
    // From a heartbeat on disk to the page: the run writes one a second.
    let last = 0;
    const gaps = [];
    let changed = performance.now();
    while (gaps.length < 4 && performance.now() - changed < 30000) {
      const now = await far();
      if (now > last) {
        if (last > 0) gaps.push((performance.now() - changed) / 1000);
        last = now;
        changed = performance.now();
      }
      await page.waitForTimeout(50);
    }
    assert.equal(gaps.length, 4, "the page goes on changing while the run learns");
    console.log(`    seconds between two changes of the page: ${gaps.map((gap) => gap.toFixed(2)).join(", ")}`);
    await accessible(page, "a running run");
    await shot(page, "run");
    // It would compete with what is measured below.
    training.kill("SIGTERM");
    await page.getByText("was interrupted").waitFor({ timeout: 30000 });
  });

  await step("two runs are compared on the same axes", async () => {
    await page.goto(address);
    await page.locator("input[value='runs/first']").check();
    await page.locator("input[value='runs/second']").check();
    await page.getByRole("button", { name: "Compare" }).click();
    await page.getByRole("heading", { name: "QR-DQN, PPO on asset-selling" }).waitFor();
    assert.match(page.url(), /run=runs%2Ffirst&run=runs%2Fsecond/);
    assert.ok((await page.getByText("best possible").count()) > 0);
    assert.match(await page.locator(".note").first().textContent(), /differ in length/);
    await accessible(page, "a comparison");
    await shot(page, "compare");
  });

  await step("a finished run shows its policy, its law and where its settings come from", async () => {
    await page.goto(`${address}/runs/runs/first`);
    for (const name of ["Policies", "Laws and predictions", "Where the settings come from"]) {
      await page.getByRole("heading", { name }).waitFor();
    }
    await accessible(page, "a finished run");
  });

  await step("the dial turns without asking the server", async () => {
    await page.goto(`${address}/dial?problem=inventory&tau=0.1`);
    await page.locator("#dial[data-ready]").waitFor();
    assert.match(await page.locator("#sentence").textContent(), /^9 times in 10 you get at least 128\./);
    await complete();
    const before = requests.length;
    const turns = () => page.evaluate(async () => {
      const dial = document.getElementById("tau");
      const [script, paint, frames] = [[], [], []];
      for (let turn = 1; turn <= 99; turn += 1) {
        const begun = performance.now();
        dial.value = turn;
        dial.dispatchEvent(new Event("input"));
        script.push(performance.now() - begun);
        document.body.getBoundingClientRect(); // Style and layout, too.
        paint.push(performance.now() - begun);
        await new Promise((resolve) => requestAnimationFrame(resolve));
        frames.push(performance.now() - begun);
      }
      return { script, paint, frames };
    });
    const costs = await turns();
    await page.locator("#beta").fill("50");
    const buffered = await turns();
    await page.locator("#beta").fill("0");
    assert.equal(requests.length, before, "a turn fetches nothing");
    const words = (values) => {
      const sorted = values.toSorted((a, b) => a - b);
      return `median ${sorted[49].toFixed(1)} ms, 95 % below ${sorted[94].toFixed(1)} ms, longest ${sorted.at(-1).toFixed(1)} ms`;
    };
    console.log(`    machine: load ${loadavg().map((load) => load.toFixed(1)).join(", ")} on ${cpus().length} cores`);
    console.log(`    99 turns: script ${words(costs.script)}`);
    console.log(`    99 turns: script, style and layout ${words(costs.paint)}`);
    console.log(`    99 turns: until the next frame ${words(costs.frames)}`);
    console.log(`    99 turns with β = τ/2: script, style and layout ${words(buffered.paint)}`);
    await page.locator("#tau").focus();
    await page.keyboard.press("ArrowLeft");
    assert.equal(await page.locator("#tau-value").textContent(), "0.98");
    await page.waitForURL(/tau=0\.98/);
    assert.match(await page.locator("#sentence").textContent(), /^1 time in 50 you get at least/);
  });

  await step("a cell says what each action is worth, and a link leads back to it", async () => {
    await page.goto(`${address}/dial?problem=asset-selling`);
    await page.locator("#dial[data-ready]").waitFor();
    await page.locator("rect.cell[data-stage='3'][data-state='17']").click();
    await page.locator("#cell tr.chosen").waitFor();
    // Period 4, 17 offered: six more offers, each below 19 with 19/25.
    assert.match(await page.locator("#cell tr.chosen").textContent(), /continue \(the plan\) 80\.7 %/);
    assert.match(await page.locator("#reservation").textContent(), /stop from 19/);
    const before = requests.length;
    await page.locator("#tau").fill("50");
    assert.match(await page.locator("#cell").textContent(), /at least 0\.9/);
    assert.equal(requests.length, before, "the cell turns with the dial");
    await page.locator("#tau").dispatchEvent("change");
    await page.goto(page.url());
    await page.locator("#cell tr.chosen").waitFor();
    assert.equal(await page.locator("#tau-value").textContent(), "0.5");
    await accessible(page, "the dial");
  });

  await step("an episode is played step by step", async () => {
    await page.locator("#play-new").click();
    await page.locator("#play-step:enabled").waitFor();
    assert.match(await page.locator("#play-words").textContent(), /^Period 1, state 5: 0 collected/);
    while (await page.locator("#play-step").isEnabled()) await page.locator("#play-step").click();
    assert.match(await page.locator("#play-words").textContent(), /(reached|missed)\.$/);
    await shot(page, "dial");
  });

  await step("β has its own best policy", async () => {
    await page.goto(`${address}/dial?problem=asset-selling&tau=0.1`);
    await complete();
    const numbers = () => page.locator("#numbers").textContent();
    const point = await page.locator("#map").innerHTML();
    await page.locator("#beta").fill("100");
    assert.match(await page.locator("#sentence").textContent(), /^In the worst 1 time in 10 you get 0\.\d+ on average\./);
    assert.equal(await page.locator("#beta-value").textContent(), "0.1: as large as τ");
    const [, best, own] = /to τ(0\.\d+).*β = 0(0\.\d+)/.exec(await numbers());
    assert.ok(Number(best) > Number(own), `the best policy for (τ, β) has more than that for τ alone: ${best}, ${own}`);
    assert.notEqual(await page.locator("#map").innerHTML(), point, "and it does something else");
    await page.locator("#beta").dispatchEvent("change");
    await page.goto(page.url());
    await complete();
    assert.match(await page.locator("#sentence").textContent(), /^In the worst 1 time in 10/, "a link leads back to it");
  });

  await step("the dial of a run shows the run's own policy beside the best", async () => {
    await page.goto(`${address}/runs/runs/live`);
    await page.getByRole("link", { name: "Turn the risk dial of this run" }).click();
    await complete();
    assert.equal(await page.locator("#who").inputValue(), "1");
    assert.match(await page.locator("#sentence").textContent(), /^9 times in 10 this run gets at least/);
    assert.equal(await page.locator("path.attained").count(), 1);
    const before = requests.length;
    const own = await page.locator("#sentence").textContent();
    await page.locator("#tau").fill("90");
    assert.notEqual(await page.locator("#sentence").textContent(), own);
    await page.locator("#who").selectOption("best");
    assert.match(await page.locator("#sentence").textContent(), /^1 time in 10 you get at least/);
    assert.equal(requests.length, before, "neither turning nor choosing whose policy fetches anything");
    await page.locator("#who").selectOption("1");
    await page.locator("#tau").fill("10");
    await page.locator("#beta").fill("100");
    assert.match(await page.locator("#sentence").textContent(), /^In the worst 1 time in 10 this run gets 0\.\d+ on average\./);
    assert.match(await page.locator("#numbers").textContent(), /The same of this run0\.\d+/);
    assert.equal(requests.length, before, "nor does β");
    await page.locator("#play-new").click();
    await page.locator("#play-step:enabled").waitFor();
    await accessible(page, "the dial of a run");
    await shot(page, "dial-run");
  });

  await step("a grid world is a map with arrows", async () => {
    await page.goto(`${address}/dial?problem=frozen-lake`);
    await page.locator("#dial[data-ready]").waitFor();
    assert.equal(await page.locator("rect.grid").count(), 16);
    const arrows = await page.locator("path.arrow").evaluateAll((paths) => paths.filter((path) => path.getAttribute("d")).length);
    assert.equal(arrows, 11, "an arrow in every cell but four holes and the goal");
    await page.locator("rect.cell[data-state='14']").click();
    await page.locator("#cell tr.chosen").waitFor();
    assert.match(await page.locator("#cell").textContent(), /the plan says/);
  });

  await step("a game is watched, at random and under a run", async () => {
    await page.goto(`${address}/play`);
    await accessible(page, "the list of games");
    await page.getByRole("link", { name: "minatar/breakout" }).click();
    await page.locator("#game[data-ready]").waitFor();
    assert.match(await page.locator("#words").textContent(), /^Step 0 of \d+: score 0\./);
    assert.ok(!(await page.locator("#level").isVisible()), "random actions have no level");
    const first = await page.locator("#board").innerHTML();
    await page.locator("#step").click();
    assert.notEqual(await page.locator("#board").innerHTML(), first, "the ball moves");
    await page.locator("#speed").selectOption("30");
    await page.locator("#run").click();
    await page.getByText("The game is over").waitFor({ timeout: 60000 });
    await accessible(page, "a game");
    train("runs/game", "minatar/breakout", "--algo", "target-tracking", "--steps", "400", "--seeds", "1", "--set", "run.evaluation_episodes=2");
    await page.goto(`${address}/runs/runs/game`);
    await page.getByRole("link", { name: "Watch this run play" }).click();
    await page.locator("#game[data-ready]").waitFor();
    assert.match(await page.locator("#words").textContent(), /(missing to the target|is reached|may still be lost).*chance/);
    assert.ok(await page.locator("#level").isVisible(), "every level has its own policy");
    await page.locator("#at").fill("3");
    assert.match(await page.locator("#words").textContent(), /^Step 3 of/);
    await page.locator("#tau").fill("90");
    await page.locator("#tau").dispatchEvent("change");
    await page.waitForURL(/tau=0\.9/);
    await accessible(page, "a game of a run");
    await shot(page, "play");
  });

  await step("every built-in problem has a dial that can be read by all", async () => {
    await page.goto(`${address}/dial`);
    const names = await page.locator("a[href^='/dial?problem=']").allTextContents();
    assert.ok(names.length >= 8);
    await accessible(page, "the list of problems");
    for (const name of names) {
      await page.goto(`${address}/dial?problem=${name}`);
      // The server plans one problem at a time; a page that has to wait loads again by itself.
      await page.locator("#dial[data-ready]").waitFor({ timeout: 60000 }).catch((error) => {
        throw new Error(`the dial of ${name}: ${error.message}`);
      });
      if (["gamble-chain", "frozen-lake"].includes(name)) await accessible(page, `the dial of ${name}`);
      if (["inventory", "frozen-lake", "cliff-walk"].includes(name)) await shot(page, `dial-${name}`);
    }
  });

  await step("dark, narrow and printed pages", async () => {
    for (const [name, target] of [["overview", "/"], ["run", "/runs/runs/first"], ["dial", "/dial?problem=asset-selling&stage=3&state=17"], ["grid", "/dial?problem=frozen-lake"], ["game", "/play?run=runs/game&who=1"]]) {
      await page.emulateMedia({ colorScheme: "dark" });
      await page.setViewportSize({ width: 1280, height: 900 });
      await page.goto(address + target);
      if (target.startsWith("/dial")) await complete();
      if (target.startsWith("/play")) await page.locator("#game[data-ready]").waitFor();
      await accessible(page, `${name}, dark`);
      await shot(page, `${name}-dark`);
      await page.emulateMedia({ colorScheme: "light" });
      await page.setViewportSize({ width: 380, height: 800 });
      const sideways = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(sideways <= 0, `${name}: a narrow window does not scroll sideways, got ${sideways} pixels`);
      await accessible(page, `${name}, narrow`);
      await shot(page, `${name}-narrow`);
      await page.setViewportSize({ width: 794, height: 1123 });
      await page.emulateMedia({ media: "print" });
      const cut = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(cut <= 0, `${name}: nothing is cut off in print, got ${cut} pixels`);
      await shot(page, `${name}-print`);
      await page.emulateMedia({ media: "screen" });
    }
    await page.setViewportSize({ width: 1280, height: 900 });
  });

  await step("tables work without JavaScript", async () => {
    const plain = await browser.newContext({ javaScriptEnabled: false });
    const reader = await plain.newPage();
    await reader.goto(address);
    assert.equal(await reader.locator("tr[data-run]").count(), 4);
    await reader.locator("input[type=search]").fill("first");
    await reader.getByRole("button", { name: "Filter" }).click();
    assert.equal(await reader.locator("tr[data-run]").count(), 1);
    await reader.goto(`${address}/dial?problem=asset-selling`);
    await reader.getByText("9 times in 10 at least 0.7917").waitFor();
    await plain.close();
  });

  assert.deepEqual(errors, [], "errors in the console");
}

const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
try {
  await main(browser);
  console.log("the live page passed");
} finally {
  for (const child of children) child.kill("SIGTERM");
  await browser.close();
  await new Promise((resolve) => setTimeout(resolve, 500));
  rmSync(directory, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
}
