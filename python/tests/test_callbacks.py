"""Evaluations while a model learns, and the progress bar."""

import os
import subprocess
import sys
import types

import gymnasium
import numpy as np
import pytest
from support import SMALL

import bqrl
from bqrl import _progress


def test_several_levels_are_measured_and_the_best_model_is_kept(tmp_path):
    told = []
    callback = bqrl.EvalCallback(every=100, risk_levels=[0.1, 0.5], best_at=0.5, path=tmp_path / "best", then=lambda *one: told.append(one))
    model = bqrl.QRDQN("bqrl/AssetSelling-v0", seed=1, hidden=[16])
    model.learn(total_timesteps=1000, callback=callback)
    assert [evaluated for _, evaluated in told] == callback.history and 8 <= len(callback.history) <= 10
    steps = [one.timesteps for one in callback.history]
    assert all(b - a >= 100 for a, b in zip([0, *steps], steps, strict=False))
    # The best is the first of the largest medians, and it is what lies there.
    medians = [one.quantile(0.5) for one in callback.history]
    best = medians.index(max(medians))
    assert callback.best is callback.history[best]
    again = bqrl.load(tmp_path / "best")
    assert again.num_timesteps == steps[best]
    value = again.evaluate(measure_at=[0.1, 0.5])
    assert [level.quantile for level in value.levels] == [level.quantile for level in callback.best.levels]
    assert value.mean == callback.best.mean
    with pytest.raises(ValueError, match="risk_level must be one of 0.1, 0.5, got 0.9"):
        callback.best.quantile(0.9)
    frame = pytest.importorskip("pandas") and callback.to_dataframe()
    assert len(frame) == 2 * len(steps) and frame["quantile"].iloc[2 * best + 1] == max(medians)


def test_no_improvement_stops_the_training():
    class Flat(gymnasium.Env):
        """Pays 1, whatever one does."""

        observation_space, action_space = gymnasium.spaces.Box(0, 1, (2,)), gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(2, np.float32), {}

        def step(self, action):
            return np.zeros(2, np.float32), 1.0, True, False, {}

    callback = bqrl.EvalCallback(every=10, patience=3, episodes=70, risk_levels=0.1)
    model = bqrl.QRDQN(Flat(), horizon=1, **SMALL).learn(1000, callback=callback)
    # The first is the best, three others are not better.
    assert [one.is_best for one in callback.history] == [True, False, False, False] and model.num_timesteps == 40
    assert callback.history[0].levels[0].interval == (1.0, 1.0)
    stopped = bqrl.EvalCallback(every=10, episodes=5, then=lambda model, evaluated: len(callback.history) < 0)
    assert bqrl.QRDQN(Flat(), horizon=1, **SMALL).learn(1000, callback=stopped).num_timesteps == 10


def test_each_level_is_measured_with_its_own_policy():
    callback = bqrl.EvalCallback(every=400, risk_levels=[0.1, 0.9])
    model = bqrl.TargetTracking("bqrl/AssetSelling-v0", seed=1).learn(450, callback=callback)
    copy = bqrl.TargetTracking("bqrl/AssetSelling-v0", seed=1).learn(total_episodes=callback.history[0].episodes)
    assert [level.quantile for level in callback.history[0].levels] == [copy.evaluate(risk_level=tau).quantile for tau in (0.1, 0.9)]
    assert model.num_timesteps == 450


def test_evaluating_changes_nothing_that_is_learned():
    def learned(callback):
        return bqrl.QRDQN("CartPole-v1", **SMALL).learn(300, callback=callback).weights()

    assert learned(bqrl.EvalCallback(every=50, episodes=5)) == learned(None)
    other = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    assert learned(bqrl.EvalCallback(other, every=50, episodes=5)) == learned(None)


def test_wrong_arguments_are_named():
    for arguments, said in [
        (dict(every=0), "every must be a whole number of at least 1, got 0"),
        (dict(patience=0), "patience must be"),
        (dict(best_at=0.2), "best_at must be one of risk_levels, got 0.2"),
    ]:
        with pytest.raises(ValueError, match=said):
            bqrl.EvalCallback(**arguments)
    with pytest.raises(ValueError, match="observations"):
        bqrl.QRDQN("CartPole-v1", **SMALL).learn(10, callback=bqrl.EvalCallback("FrozenLake-v1"))


LEARN = """
import bqrl
bqrl.QRDQN("bqrl/AssetSelling-v0", hidden=[8]).learn(total_timesteps=300, progress_bar=True)
"""


def test_a_terminal_has_a_bar_and_a_pipe_has_none():
    pty = pytest.importorskip("pty")
    piped = subprocess.run([sys.executable, "-c", LEARN], capture_output=True, text=True, check=True)
    assert (piped.stdout, piped.stderr) == ("", "")
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", LEARN], stderr=theirs, check=True)
    os.close(theirs)
    said = os.read(ours, 65536).decode()
    os.close(ours)
    last = said.split("\r")[-2] if said.endswith("\r\n") else said.split("\r")[-1]
    assert "█" * 30 in last and "300/300 steps" in last and "Q_0.1" in last and "median" in last


def test_a_notebook_has_a_bar_of_its_own(monkeypatch, capsys):
    shown = []

    class Handle:
        def update(self, what):
            shown.append(what)

    display = types.ModuleType("IPython.display")
    display.HTML = str
    display.display = lambda what, display_id: Handle()
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    ipython.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    bqrl.QRDQN("bqrl/AssetSelling-v0", hidden=[8]).learn(total_episodes=30, progress_bar=True)
    assert shown[-1].startswith('<progress value="30" max="30"></progress> 30/30 episodes')
    assert capsys.readouterr().err == ""


def test_the_time_to_go_is_said(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    progress = _progress.Progress(1000, "steps")
    now[0] = 110.0
    progress.returns.extend([1.0, 2.0, 3.0])
    assert progress.words(100, 100) == "100/1000 steps · 10 steps/s · 1:30 to go · last 3 returns: Q_0.1 1, median 2"
    now[0] = 100.0 + 3723
    assert progress.words(1000, 1000).startswith("1000/1000 steps · 0 steps/s · 1:02:03")
