// The buttons that uncover something step by step: one step, or running until the end.

/**
 * Connects two buttons. `more` says whether there is a further step, `step` takes it, `pause` is the time between two steps in
 * milliseconds. Returns `stop`, `again` (the pause has changed) and `show` (the buttons as they should be).
 */
export function stepper({ stepButton, runButton, more, step, pause }) {
  let timer = null;

  function show() {
    stepButton.disabled = runButton.disabled = !more();
    runButton.textContent = timer === null ? "Run" : "Pause";
    runButton.setAttribute("aria-pressed", String(timer !== null));
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    show();
  }

  function forward() {
    if (more()) step();
    if (!more()) stop();
    else show();
  }

  function run() {
    timer = setInterval(forward, pause());
    forward();
  }

  stepButton.addEventListener("click", forward);
  runButton.addEventListener("click", () => (timer === null ? run() : stop()));
  return {
    stop,
    show,
    again() {
      if (timer === null) return;
      clearInterval(timer);
      timer = setInterval(forward, pause());
    },
  };
}
