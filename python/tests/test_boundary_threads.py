"""Threads, forks, garbage, and the end of the interpreter: one model, used from everywhere, stays whole."""

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from support import SMALL, Diary

import bqrl

KINDS = [bqrl.DeepBQRL, bqrl.QRDQN, bqrl.TargetTracking]


def made(kind, env):
    few = {"n_quantiles": 6} if kind is bqrl.TargetTracking else {}
    return kind(TimeLimit(Diary(), 10) if env == "python" else env, seed=3, **SMALL, **few)


def first(env):
    return np.zeros(3, np.float32) if env == "python" else 0


@pytest.mark.parametrize("env", ["bqrl/FrozenLake-v0", "python"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_model_is_used_by_five_threads_while_it_learns(kind, env, tmp_path):
    alone = made(kind, env).learn(400).weights()
    model = made(kind, env)
    stop, said, saves = threading.Event(), [], []

    def again_and_again(use):
        def work():
            while not stop.is_set():
                try:
                    use()
                except Exception as error:  # noqa: BLE001 – compared below.
                    said.append(repr(error))
                time.sleep(0.001)

        return threading.Thread(target=work)

    def save():
        path = tmp_path / str(len(saves) % 4)
        model.save(path)
        # A save in the middle of learning is one that can be learned on from.
        again = bqrl.load(path, env=TimeLimit(Diary(), 10) if env == "python" else env)
        again.learn(3)
        saves.append(path)

    threads = [
        again_and_again(use)
        for use in (
            lambda: model.predict(first(env)),
            lambda: model.evaluate(TimeLimit(Diary(), 10) if env == "python" else None, episodes=2),
            lambda: (model.num_updates, model.num_timesteps, repr(model), len(model.weights())),
            save,
        )
    ]
    for thread in threads:
        thread.start()
    try:
        model.learn(400)
        while not saves and not said:
            time.sleep(0.001)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not said
    # Looking at a model does not change what it learns.
    assert model.weights() == alone


def test_only_one_of_many_threads_learns():
    model = made(bqrl.QRDQN, "python")
    said = []

    def learn():
        try:
            model.learn(300)
            said.append("ok")
        except RuntimeError as error:
            said.append(str(error))

    threads = [threading.Thread(target=learn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(said) <= {"ok", "the model is learning already"} and said.count("ok") >= 1
    assert model.num_timesteps == 300 * said.count("ok")


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def in_a_fork(work):
    """The exit code of a child that does some work; it must not take forever."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    for _ in range(3000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "hangs"


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("env", ["bqrl/FrozenLake-v0", "python"])
def test_parent_and_child_of_a_fork_learn_the_same(env, tmp_path):
    model = made(bqrl.DeepBQRL, env).learn(50)

    def work():
        model.predict(first(env))
        model.learn(50)
        model.evaluate(episodes=2)
        model.save(tmp_path / "child")

    assert in_a_fork(work) == 0
    model.learn(50)
    assert bqrl.load(tmp_path / "child").weights() == model.weights()


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_plans_after_its_parent_did(tmp_path):
    # Large enough that several threads plan; a fork does not copy them.
    best = [level.best_quantile_lower for level in bqrl.plan("american-put", grid=200_000, risk_level=0.1).levels]

    def work():
        again = bqrl.plan("american-put", grid=200_000, risk_level=0.1)
        assert [level.best_quantile_lower for level in again.levels] == best
        bqrl.QRDQN("bqrl/AmericanPut-v0", **SMALL).learn(3, log_dir=tmp_path / "run")

    assert in_a_fork(work) == 0
    bqrl.plan("american-put", grid=200_000, risk_level=0.1)


def learn_elsewhere(queue):
    queue.put(made(bqrl.QRDQN, "python").learn(50).weights())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_other_processes_learn_the_same(method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=learn_elsewhere, args=(queue,))
    process.start()
    assert queue.get(timeout=60) == made(bqrl.QRDQN, "python").learn(50).weights()
    process.join()
    assert process.exitcode == 0


def test_cycles_of_model_environment_and_callback_are_collected():
    class Collecting(Diary):
        def step(self, action):
            gc.collect()
            return super().step(action)

    class Keeper(bqrl.Callback):
        def on_step(self, model):
            self.model = model
            gc.collect()

    def cycle():
        env, keeper = Collecting(), Keeper()
        model = bqrl.QRDQN(TimeLimit(env, 10), **SMALL)
        env.model, model.keeper, keeper.env = model, keeper, env
        model.learn(20, callback=keeper)
        model.evaluate(episodes=2)
        return [weakref.ref(one) for one in (env, model, keeper)]

    left = cycle()
    gc.collect()
    assert [one() for one in left] == [None] * 3


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_finalizers_that_raise_do_not_matter():
    class Bad(Diary):
        def __del__(self):
            raise ZeroDivisionError("mine")

        def step(self, action):
            Bad(self.who)
            return super().step(action)

    model = bqrl.QRDQN(TimeLimit(Bad(), 10), **SMALL).learn(20)
    assert model.num_timesteps == 20
    del model
    gc.collect()


def python(script, *arguments):
    """Runs a script to its end; an abort would be a negative exit code."""
    done = subprocess.run([sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode >= 0, done.stderr
    assert "panicked" not in done.stderr and "Fatal" not in done.stderr, done.stderr
    return done


DAEMON = """
import sys, threading, time
import gymnasium, numpy as np
import bqrl
model = bqrl.QRDQN(sys.argv[1], hidden=[4], batch_size=4, replay_capacity=1000)
seen = model.observation_space.sample()
uses = {
    "learn": lambda: model.learn(10**9),
    "evaluate": lambda: model.evaluate(gymnasium.wrappers.TransformReward(gymnasium.make(sys.argv[1]), float), episodes=10**9),
    "predict": lambda: [model.predict(seen) for _ in iter(int, 1)],
    "plan": lambda: [bqrl.plan("american-put", grid=100_000) for _ in iter(int, 1)],
}
threading.Thread(target=uses[sys.argv[2]], daemon=True).start()
time.sleep(float(sys.argv[3]))
"""


@pytest.mark.parametrize("use", ["learn", "evaluate", "predict", "plan"])
def test_the_interpreter_ends_while_a_daemon_thread_works(use):
    for env in ("CartPole-v1", "bqrl/FrozenLake-v0") if use == "learn" else ("CartPole-v1",):
        for delay in (0.05, 0.11):
            done = python(DAEMON, env, use, delay)
            assert done.returncode == 0 and done.stderr == ""


def test_the_interpreter_ends_with_models_alive():
    script = """
import atexit, sys, bqrl
model = bqrl.QRDQN("bqrl/FrozenLake-v0", hidden=[4]).learn(10)
class Late:
    def __del__(self):
        try:
            model.learn(5)
        except BaseException as error:
            print(type(error).__name__)
late = model.late = Late()
sys.modules["keep"] = model
# Registered after the import of bqrl, so it comes before: a model can still be saved.
atexit.register(lambda: (model.learn(5), model.save(sys.argv[1])))
"""
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        done = python(script, f"{directory}/model")
        assert done.returncode == 0, done.stderr
        assert bqrl.load(f"{directory}/model").num_timesteps == 15


def test_other_interpreters_of_one_process_are_refused():
    script = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import bqrl
inner = interpreters.create()
run = getattr(interpreters, "run_string", None) or interpreters.exec
try:
    failed = run(inner, "import bqrl")
except Exception as error:
    failed = error
print(failed)
"""
    done = python(script)
    assert done.returncode != 0 or "ImportError" in done.stdout or "None" in done.stdout


def test_little_room_for_recursion():
    script = """
import sys, gymnasium, bqrl
sys.path.insert(0, sys.argv[1])
from support import Diary
model = bqrl.QRDQN(Diary(), horizon=10, hidden=[4], batch_size=4)
for limit in range(4, 80):
    try:
        sys.setrecursionlimit(limit)
        model.learn(3)
    except RecursionError:
        pass
    finally:
        sys.setrecursionlimit(1000)
steps = model.num_timesteps
assert model.learn(3).num_timesteps == steps + 3
"""
    done = python(script, Path(__file__).parent)
    assert done.returncode == 0, done.stderr


def test_a_callback_that_uses_everything(tmp_path):
    class Busy(bqrl.Callback):
        def on_step(self, model):
            model.predict(np.zeros(3, np.float32))
            with pytest.raises(RuntimeError, match="learning already"):
                model.learn(1)

        def on_episode_end(self, model, episode):
            model.save(tmp_path / "model")
            bqrl.load(tmp_path / "model", env=gymnasium.wrappers.TimeLimit(Diary(), 10)).learn(3)

    assert made(bqrl.DeepBQRL, "python").learn(30, callback=Busy()).num_timesteps == 30
