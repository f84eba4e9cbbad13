"""Ctrl-C arrives as KeyboardInterrupt wherever it comes, and leaves the model and its run whole."""

import os
import random
import signal
import subprocess
import sys
import threading

import gymnasium
import pytest
from gymnasium.wrappers import TimeLimit
from support import SMALL, Diary

import bqrl

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of Unix")


@pytest.fixture
def after():
    """Interrupts after so many seconds, as Ctrl-C does."""
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)


def env_of(name):
    return TimeLimit(Diary(), 10) if name == "python" else name


@pytest.mark.parametrize("env", ["python", "bqrl/FrozenLake-v0"])
@pytest.mark.parametrize("log", [False, True], ids=["", "log_dir"])
def test_at_random_instants_of_learning(env, log, after, tmp_path):
    rng = random.Random(1)
    model = bqrl.QRDQN(env_of(env), **SMALL)
    how = {"log_dir": tmp_path / "run", "evaluation_episodes": 3, "evaluate_every": "500 steps"} if log else {}
    model.learn(10, **how)
    for _ in range(20):
        steps = model.num_timesteps
        with pytest.raises(KeyboardInterrupt):
            after(rng.uniform(0.0002, 0.04))
            while True:
                model.learn(10**9, **how)
        assert model.num_timesteps >= steps
        if log:
            run = bqrl.load(tmp_path / "run", env=env_of(env))
            assert run.num_timesteps == model.num_timesteps and run.weights() == model.weights()
    model.learn(10, **how)
    model.save(tmp_path / "model")
    assert bqrl.load(tmp_path / "model").weights() == model.weights()


def test_in_callbacks_and_steps(tmp_path):
    def interrupt(*_):
        signal.raise_signal(signal.SIGINT)

    class Step(Diary):
        def step(self, action):
            if self.t == 1:
                interrupt()
            return super().step(action)

    class Reset(Diary):
        def reset(self, **how):
            interrupt()
            return super().reset(**how)

    class OnStep(bqrl.Callback):
        on_step = interrupt

    for env, callback, steps in ((Step(), None, 1), (Reset(), None, 0), (Diary(), OnStep(), 1), (Diary(), interrupt, 2)):
        model = bqrl.QRDQN(TimeLimit(env, 10), **SMALL)
        with pytest.raises(KeyboardInterrupt):
            model.learn(100, callback=callback)
        assert model.num_timesteps == steps
        with pytest.raises(KeyboardInterrupt):
            model.evaluate(TimeLimit(Step(), 10), episodes=5)
        model.set_env(TimeLimit(Diary(), 10))
        assert model.learn(10).num_timesteps == steps + 10


@pytest.mark.parametrize("use", ["plan", "evaluate", "evaluate exactly", "first plan of a run"])
def test_in_long_native_work(use, after, tmp_path):
    # Each takes many seconds when nothing ends it; that it ends is what the test waits for.
    model = bqrl.QRDQN(gymnasium.make("bqrl/AmericanPut-v0", horizon=150), **SMALL)

    def work():
        if use == "plan":
            bqrl.plan("american-put", grid=3_000_000, beta=0.05)
        elif use == "evaluate":
            model.evaluate(gymnasium.wrappers.TransformReward(gymnasium.make("bqrl/AmericanPut-v0", horizon=150), float), episodes=10**9)
        elif use == "evaluate exactly":
            while True:
                model.evaluate()
        else:
            while True:
                bqrl.QRDQN(gymnasium.make("bqrl/AmericanPut-v0", horizon=150), **SMALL).learn(1, log_dir=tmp_path / str(random.random()))

    with pytest.raises(KeyboardInterrupt):
        after(0.2)
        work()
    after(0)
    assert model.learn(10).num_timesteps == 10


def test_while_another_thread_learns(after):
    model = bqrl.QRDQN(TimeLimit(Diary(), 10), **SMALL)
    thread = threading.Thread(target=lambda: model.learn(2000))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        after(0.02)
        while True:
            model.predict(Diary.observation_space.low)
    thread.join()
    # Signals are for the main thread.
    assert model.num_timesteps == 2000


def test_a_signal_while_the_package_is_first_used():
    # NumPy is looked up once, when it is first needed: not at an instant at which an exception would be lost.
    script = """
import signal, sys
import bqrl
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
try:
    while True:
        bqrl.plan("asset-selling")
except KeyboardInterrupt:
    sys.exit(7)
"""
    for delay in (1e-6, 0.001, 0.003, 0.01):
        done = subprocess.run([sys.executable, "-c", script, str(delay)], capture_output=True, text=True, timeout=60)
        # Outside of the try, the interrupt ends the process as Ctrl-C does.
        assert "Panic" not in done.stderr and done.returncode in (7, 1, -signal.SIGINT), done.stderr
        assert done.returncode == 7 or "KeyboardInterrupt" in done.stderr


def test_a_handler_of_the_users_own(after):
    heard = []

    class Stop(Exception):
        pass

    def handler(*_):
        heard.append(1)
        raise Stop("mine")

    signal.signal(signal.SIGALRM, handler)
    for env in ("python", "bqrl/FrozenLake-v0"):
        model = bqrl.QRDQN(env_of(env), **SMALL)
        with pytest.raises(Stop, match="^mine$"):
            after(0.02)
            model.learn(10**9)
        assert model.num_timesteps > 0
    assert heard == [1, 1]
