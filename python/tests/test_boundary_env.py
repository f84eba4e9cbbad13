"""Environments that misbehave, one by one and in lanes: the right exception, and what was learned before it is kept."""

import copy
import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TimeLimit
from support import SMALL, Diary

import bqrl


class Fault(Exception):
    """An environment's own."""


class Spoiled(gymnasium.Wrapper):
    """Goes wrong once, at call `at` of step, counted from 1; or at call `at` of reset."""

    def __init__(self, spoil, at=4, method="step"):
        super().__init__(TimeLimit(Diary(), 10))
        self.spoil, self.at, self.method, self.calls = spoil, at, method, 0

    def _maybe(self, method, result):
        self.calls += method == self.method
        return self.spoil(*result) if (method, self.calls) == (self.method, self.at) else result

    def reset(self, **how):
        return self._maybe("reset", self.env.reset(**how))

    def step(self, action):
        return self._maybe("step", self.env.step(action))


def lanes_of(env, lane, kind=SyncVectorEnv, **how):
    """Three lanes; the environment is one of them."""
    return kind([(lambda: env) if k == lane else (lambda: TimeLimit(Diary(), 10)) for k in range(3)], **how)


def fault(*_):
    raise Fault("mine")


def is_as_good_as_before(model, tmp_path):
    """Saves, loads, predicts, evaluates and learns on."""
    steps = model.num_timesteps
    model.set_env(TimeLimit(Diary(), 10))
    model.save(tmp_path / "model")
    again = bqrl.load(tmp_path / "model", env=TimeLimit(Diary(), 10))
    seen = np.zeros(3, np.float32)
    assert again.num_timesteps == steps and again.predict(seen)[0] == model.predict(seen)[0]
    assert model.evaluate(episodes=3).episodes == 3
    for one in (model, again):
        one.learn(20)
        assert one.num_timesteps == steps + 20


def packed(seen):
    """A field of packed records: unaligned, and its stride is no multiple of its size."""
    records = np.zeros(len(seen), [("a", "u1"), ("b", "f4")])
    records["b"] = seen
    return records["b"]


def shifted(seen):
    """Unaligned, but in one piece."""
    raw = np.zeros(4 * len(seen) + 1, np.uint8)
    raw[1:].view(np.float32)[:] = seen
    return raw[1:].view(np.float32)


GOOD = {
    "big-endian": lambda s, r, t, u, i: (s.astype(">f4"), r, t, u, i),
    "half": lambda s, r, t, u, i: (s.astype("f2"), np.float16(r), t, u, i),
    "double": lambda s, r, t, u, i: (s.astype("f8"), np.longdouble(r), t, u, i),
    "integers": lambda s, r, t, u, i: (s.astype("i2"), int(r), t, u, i),
    "list": lambda s, r, t, u, i: [s.tolist(), r, t, u, i],
    "strided": lambda s, r, t, u, i: (np.repeat(s, 2)[::2], r, t, u, i),
    "backwards": lambda s, r, t, u, i: (s[::-1].copy()[::-1], r, t, u, i),
    "packed": lambda s, r, t, u, i: (packed(s), r, t, u, i),
    "shifted": lambda s, r, t, u, i: (shifted(s), r, t, u, i),
    "read-only": lambda s, r, t, u, i: (np.frombuffer(s.tobytes(), np.float32), r, t, u, i),
    "masked, nothing hidden": lambda s, r, t, u, i: (np.ma.masked_array(s), r, t, u, i),
    "reward in an array": lambda s, r, t, u, i: (s, np.array([r]), t, u, i),
    "reward of no dimension": lambda s, r, t, u, i: (s, np.array(r), t, u, i),
    "flags of NumPy": lambda s, r, t, u, i: (s, r, np.bool_(t), np.array(u), i),
    "flags in arrays": lambda s, r, t, u, i: (s, r, np.array([t]), np.array([u]), i),
    "flags as numbers": lambda s, r, t, u, i: (s, r, int(t), float(u), i),
    "no info": lambda s, r, t, u, i: (s, r, t, u, None),
}


@pytest.mark.parametrize("spoil", GOOD.values(), ids=GOOD)
def test_what_is_as_good_as_it_should_be_is_learned_from_bit_for_bit(spoil):
    plain = bqrl.QRDQN(TimeLimit(Diary(), 10), **SMALL).learn(20)
    other = bqrl.QRDQN(Spoiled(spoil), **SMALL).learn(20)
    assert plain.weights() == other.weights()


@pytest.mark.parametrize("reward", [True, np.True_, 2**70, np.int8(-3), np.uint64(2**63), np.float32(0.1)])
def test_numbers_of_any_kind_are_rewards(reward):
    heard = []
    model = bqrl.QRDQN(Spoiled(lambda s, r, *rest: (s, reward, *rest), at=1), learning_rate=1e-30, **SMALL)
    model.learn(total_episodes=1, callback=lambda model, episode: heard.append(episode.episode_return))
    assert heard == [float(reward) + 2.0]


WRONG = {
    "its own": (fault, Fault, "^mine$"),
    "stop": (lambda *_: next(iter(())), StopIteration, ""),
    "NaN": (lambda s, r, *x: (s * np.nan, r, *x), ValueError, "step .*finite numbers, got NaN at position 0"),
    "infinite": (lambda s, r, *x: (s + np.float32(np.inf), r, *x), ValueError, "step .*finite numbers"),
    "shape": (lambda s, r, *x: (s[:2], r, *x), ValueError, r"step .*shape \[3\], got \[2\]"),
    "more": (lambda s, r, *x: (s[None], r, *x), ValueError, r"step .*shape \[3\], got \[1, 3\]"),
    "None": (lambda s, r, *x: (None, r, *x), ValueError, "step .*shape"),
    "text": (lambda s, r, *x: (s.astype(str), r, *x), TypeError, "step .*numbers, got dtype"),
    "object": (lambda s, r, *x: (s.astype(object), r, *x), TypeError, "step .*numbers, got dtype object"),
    "huge": (lambda s, r, *x: ([2**70] * 3, r, *x), TypeError, "step .*numbers"),
    "complex": (lambda s, r, *x: (s.astype(complex), r, *x), TypeError, "step .*numbers, got dtype complex"),
    "masked": (lambda s, r, *x: (np.ma.masked_array(s, [1, 0, 0]), r, *x), ValueError, "step .*masked"),
    "ragged": (lambda s, r, *x: ([[1], [2, 3]], r, *x), ValueError, "step "),
    "reward NaN": (lambda s, r, *x: (s, np.nan, *x), ValueError, "step .*finite reward, got NaN"),
    "reward None": (lambda s, r, *x: (s, None, *x), TypeError, "step .*number as reward"),
    "reward text": (lambda s, r, *x: (s, "1", *x), TypeError, "step .*number as reward"),
    "rewards": (lambda s, r, *x: (s, np.array([r, r]), *x), TypeError, "step .*number as reward"),
    "reward complex": (lambda s, r, *x: (s, 1j, *x), TypeError, "step .*number as reward"),
    "reward huge": (lambda s, r, *x: (s, 10**400, *x), ValueError, "step .*finite reward, got a whole number beyond"),
    "reward large": (lambda s, r, *x: (s, 1e39, *x), ValueError, "step .*finite reward of single precision, got 1e39"),
    "terminated None": (lambda s, r, t, u, i: (s, r, None, u, i), TypeError, "step .*True or False as terminated, got None"),
    "terminated text": (lambda s, r, t, u, i: (s, r, "False", u, i), TypeError, "step .*True or False as terminated"),
    "truncated NaN": (lambda s, r, t, u, i: (s, r, t, np.nan, i), TypeError, "step .*True or False as truncated"),
    "four values": (lambda s, r, t, u, i: (s, r, t, i), TypeError, "step .*must return .*terminated, truncated.*, got 4 values"),
    "three values": (lambda s, r, t, u, i: (s, r, t), TypeError, "must return"),
    "a dictionary": (lambda *_: {}, TypeError, "must return"),
    "nothing": (lambda *_: None, TypeError, "must return .*, got None"),
    "an array": (lambda *_: np.zeros(5), TypeError, "must return"),
}


@pytest.mark.parametrize(("spoil", "error", "said"), WRONG.values(), ids=WRONG)
def test_a_single_environment_that_goes_wrong(spoil, error, said, tmp_path):
    env = Spoiled(spoil)
    model = bqrl.DeepBQRL(env, **SMALL)
    with pytest.raises(error, match=said or None) as raised:
        model.learn(20)
    assert str(raised.value).isprintable() and model.num_timesteps == 3
    is_as_good_as_before(model, tmp_path)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("lane", [0, 1, 2])
def test_a_lane_that_raises(lane, mode, tmp_path):
    for at in (1, 4):
        env = Spoiled(fault, at=at)
        model = bqrl.DeepBQRL(lanes_of(env, lane, autoreset_mode=mode), **SMALL)
        with pytest.raises(Fault, match="^mine$") as raised:
            model.learn(60)
        assert raised.traceback[-1].name == "fault"
        assert model.num_timesteps <= 3 * (at - 1)
        is_as_good_as_before(model, tmp_path / str(at))


@pytest.mark.parametrize("lane", [0, 2])
@pytest.mark.parametrize("spoil", ["NaN", "reward NaN", "reward huge"])
def test_a_lane_that_shows_what_cannot_be_used(spoil, lane, tmp_path):
    # The vector environment puts the lanes together, so what is of a wrong kind fails there already.
    change, error, _ = WRONG[spoil]
    model = bqrl.DeepBQRL(lanes_of(Spoiled(change), lane), **SMALL)
    with pytest.raises((error, OverflowError), match=f"environment {lane}, step|too large"):
        model.learn(60)
    is_as_good_as_before(model, tmp_path)


@pytest.mark.parametrize("method", ["reset", "step"])
def test_exceptions_come_out_as_they_went_in(method):
    for kind in (Fault, KeyError, SystemExit, KeyboardInterrupt, MemoryError, RecursionError, GeneratorExit, OSError):
        thrown = kind("\x1b[31mmine\n")

        def throw(*_, thrown=thrown):
            raise thrown

        for env in (Spoiled(throw, at=2, method=method), lanes_of(Spoiled(throw, at=2, method=method), 1)):
            model = bqrl.QRDQN(env, **SMALL)
            with pytest.raises(kind) as raised:
                model.learn(60)
            assert raised.value is thrown and raised.traceback[-1].name == "throw"
            model.set_env(TimeLimit(Diary(), 10))
            with pytest.raises(kind) as raised:
                model.evaluate(Spoiled(throw, at=2, method=method), episodes=5)
            assert raised.value is thrown


@pytest.mark.parametrize("result", [None, "observation", (1, 2, 3), {}, 3, (np.zeros(3),)])
def test_a_reset_that_returns_something_else(result, tmp_path):
    model = bqrl.DeepBQRL(Spoiled(lambda *_: result, at=2, method="reset"), **SMALL)
    with pytest.raises(TypeError, match=r"reset .*must return \(observation, info\)"):
        model.learn(20)
    assert model.num_timesteps == 2
    is_as_good_as_before(model, tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_an_asynchronous_lane_that_raises(tmp_path):
    # Its processes are gone afterwards; the model is not.
    env = AsyncVectorEnv([lambda: Spoiled(fault), lambda: TimeLimit(Diary(), 10)], context="fork")
    model = bqrl.QRDQN(env, horizon=10, **SMALL)
    with pytest.raises(Exception, match="mine") as raised:
        model.learn(60)
    assert type(raised.value).__name__ == "Fault" and model.num_timesteps > 0
    env.close(terminate=True)
    is_as_good_as_before(model, tmp_path)


class Batch(VectorEnv):
    """Two lanes that are written as one environment; `spoil` changes what a step returns."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    num_envs = 2
    single_observation_space = Diary.observation_space
    single_action_space = Diary.action_space
    observation_space = spaces.Box(-1, 1e6, (2, 3), np.float32)
    action_space = spaces.MultiDiscrete([2, 2])

    def __init__(self, spoil=lambda *step: step, at=5, first=lambda seen: seen):
        self.spoil, self.at, self.first, self.steps = spoil, at, first, 0
        self.seen = np.zeros((2, 3), np.float32)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.first(self.seen), {}

    def step(self, actions):
        self.steps, self.t = self.steps + 1, (self.t + 1) % 4
        self.seen[:] = self.steps
        over = np.full(2, self.t == 3)
        step = self.seen, np.ones(2), over, np.zeros(2, bool), {}
        return self.spoil(*step) if self.steps == self.at else step


@pytest.mark.parametrize(
    ("spoil", "error", "said"),
    [
        (fault, Fault, "^mine$"),
        (lambda s, r, *x: (s[:1], r, *x), ValueError, "want 2 observations"),
        (lambda s, r, *x: (np.vstack([s, s]), r, *x), ValueError, "want 2 observations"),
        (lambda s, r, *x: (None, r, *x), ValueError, "want 2 observations, got None"),
        (lambda s, r, *x: (3.0, r, *x), ValueError, "want 2 observations"),
        (lambda s, r, *x: (s, r[:1], *x), ValueError, "want 2 rewards"),
        (lambda s, r, *x: (s, 1.0, *x), ValueError, "want 2 rewards"),
        (lambda s, r, *x: (s, None, *x), ValueError, "want 2 rewards"),
        (lambda s, r, *x: (s, [1.0, None], *x), TypeError, "environment 1, step .*number as reward"),
        (lambda s, r, *x: (s, ["a", 1.0], *x), TypeError, "environment 0, step .*number as reward"),
        (lambda s, r, t, *x: (s, r, True, *x), ValueError, "want 2 terminations"),
        (lambda s, r, t, *x: (s, r, [0, "x"], *x), TypeError, "environment 1, step .*terminated"),
        (lambda s, r, t, u, i: (s, r, t, u[:0], i), ValueError, "want 2 truncations"),
        (lambda s, r, t, u, i: (s, r, t, i), TypeError, "got 4 values"),
        (lambda *_: None, TypeError, "got None"),
        (lambda s, r, *x: ([[1, 2, 3], [1, 2]], r, *x), ValueError, "environment 1, step .*shape"),
        (lambda s, r, *x: (s * np.array([[1], [np.nan]]), r, *x), ValueError, "environment 1, step .*finite numbers"),
    ],
)
def test_a_vector_environment_that_goes_wrong(spoil, error, said, tmp_path):
    model = bqrl.QRDQN(Batch(spoil), horizon=10, **SMALL)
    with pytest.raises(error, match=said or None) as raised:
        model.learn(40)
    assert str(raised.value).isprintable() and model.num_timesteps == 6
    is_as_good_as_before(model, tmp_path)


@pytest.mark.parametrize("first", [lambda s: s[:1], lambda s: np.vstack([s, s]), lambda s: None, lambda s: 3])
def test_a_vector_environment_that_starts_with_the_wrong_number_of_lanes(first):
    with pytest.raises(ValueError, match="want 2 observations"):
        bqrl.QRDQN(Batch(first=first), horizon=10, **SMALL).learn(40)


def test_rewards_in_columns_are_rewards():
    plain = bqrl.QRDQN(Batch(), horizon=10, **SMALL).learn(40)
    column = Batch(lambda s, r, t, u, i: (s, r[:, None], t[:, None], u[:, None], i))
    assert bqrl.QRDQN(column, horizon=10, **SMALL).learn(40).weights() == plain.weights()


def test_arrays_that_the_environment_changes_later_were_copied():
    class Reused(Diary):
        """Returns one array again and again, and spoils it in between."""

        seen = np.zeros(3, np.float32)

        def reset(self, **how):
            self.seen[:] = super().reset(**how)[0]
            return self.seen, {}

        def step(self, action):
            self.seen[:] = np.nan
            result = super().step(action)
            self.seen[:] = result[0]
            return (self.seen, *result[1:])

    plain, reused = (bqrl.QRDQN(kind(), horizon=10, **SMALL).learn(40) for kind in (Diary, Reused))
    assert plain.weights() == reused.weights()


def test_actions_need_not_begin_with_zero(tmp_path):
    class Shifted(Diary):
        action_space = spaces.Discrete(2, start=-7)

        def step(self, action):
            assert action in (-7, -6)
            return super().step(action + 7)

    shifted, plain = (bqrl.QRDQN(kind(), horizon=10, **SMALL).learn(40) for kind in (Shifted, Diary))
    assert shifted.weights() == plain.weights()
    shifted.save(tmp_path / "model")
    again = bqrl.load(tmp_path / "model", env=Shifted())
    assert again.learn(10).predict(np.zeros(3, np.float32))[0] in (-7, -6)
    for use in (again.set_env, again.evaluate, lambda env: again.learn(1, log_dir=tmp_path / "run", eval_env=env)):
        with pytest.raises(ValueError, match="actions from -7, those of the environment begin with 0"):
            use(Diary())


def test_a_policy_is_evaluated_only_where_it_fits():
    model = bqrl.QRDQN("bqrl/AssetSelling-v0", **SMALL).learn(20)
    for other in ("bqrl/FrozenLake-v0", "bqrl/GambleChain-v0", "CartPole-v1"):
        with pytest.raises(ValueError, match="the model was made for"):
            model.evaluate(other)
    table = gymnasium.make("bqrl/AssetSelling-v0")
    exact = model.evaluate(table)
    # A wrapper may change the rewards, so what it wraps is not evaluated in its place.
    raised = model.evaluate(gymnasium.wrappers.TransformReward(table, lambda reward: reward + 100), episodes=50)
    assert exact.exact and not raised.exact
    assert raised.values.min() > exact.values.max()


class Entered(Diary):
    """Uses the model that plays in it, in the middle of a step."""

    def __init__(self, use):
        super().__init__()
        self.use, self.model, self.said = use, None, []

    def step(self, action):
        if self.model is not None and self.t == 1:
            try:
                self.use(self.model)
                self.said.append("ok")
            except Exception as error:
                self.said.append(f"{type(error).__name__}: {error}")
        return super().step(action)


@pytest.mark.parametrize("make", [lambda env: TimeLimit(env, 10), lambda env: SyncVectorEnv([lambda: TimeLimit(env, 10)])])
def test_the_model_may_be_used_inside_a_step(make, tmp_path):
    plain = bqrl.DeepBQRL(make(Diary()), **SMALL).learn(30)

    def inside(use):
        env = Entered(use)
        env.model = model = bqrl.DeepBQRL(make(env), **SMALL)
        model.learn(30)
        assert model.num_timesteps == 30 and model.weights() == plain.weights()
        return set(env.said)

    assert inside(lambda model: model.predict(np.zeros(3, np.float32))) == {"ok"}
    assert inside(lambda model: model.save(tmp_path / "model")) == {"ok"}
    assert inside(lambda model: (model.num_updates, repr(model), model.weights())) == {"ok"}
    assert inside(lambda model: model.evaluate(TimeLimit(Diary(), 10), episodes=2)) == {"ok"}
    assert inside(lambda model: bqrl.plan("asset-selling")) == {"ok"}
    assert inside(lambda model: bqrl.load(tmp_path / "model").learn) == {"ok"}
    assert inside(lambda model: model.learn(5)) == {"RuntimeError: the model is learning already"}
    assert inside(lambda model: model.set_env(TimeLimit(Diary(), 10))) == {"ok"}
    assert inside(lambda model: vars(model).pop("observation_space", None)) == {"ok"}


def test_a_closed_environment_and_one_that_takes_itself_apart(tmp_path):
    class Closed(Diary):
        def close(self):
            self.closed = True

        def reset(self, **how):
            if getattr(self, "closed", False):
                raise Fault("closed")
            return super().reset(**how)

    env = Closed()
    model = bqrl.QRDQN(env, horizon=10, **SMALL).learn(20)
    env.close()
    with pytest.raises(Fault, match="closed"):
        model.learn(20)
    assert model.num_timesteps == 20
    is_as_good_as_before(model, tmp_path)

    class Vanishing(Diary):
        def step(self, action):
            vars(self).clear()
            return super().step(action)

    with pytest.raises(AttributeError):
        bqrl.QRDQN(Vanishing(), horizon=10, **SMALL).learn(20)


def test_an_environment_that_never_stops_calling_itself():
    class Deep(Diary):
        def step(self, action):
            self.model.evaluate(self, episodes=1)
            return super().step(action)

    env = Deep()
    env.model = model = bqrl.QRDQN(env, horizon=10, **SMALL)
    with pytest.raises(RecursionError):
        model.learn(20)
    model.set_env(TimeLimit(Diary(), 10))
    model.learn(20)


def test_a_run_goes_on_after_an_environment_raised(tmp_path):
    for number, env in enumerate([Spoiled(fault, at=23), lanes_of(Spoiled(fault, at=9), 1)]):
        run = tmp_path / str(number)
        how = {"log_dir": run, "eval_env": TimeLimit(Diary(), 10), "evaluation_episodes": 3, "evaluate_every": "10 steps"}
        model = bqrl.DeepBQRL(env, **SMALL)
        with pytest.raises(Fault, match="^mine$"):
            model.learn(60, **how)
        assert bqrl.load(run).weights() == model.weights() and not (run / "summary.json").exists()
        same = TimeLimit(Diary(), 10) if number == 0 else SyncVectorEnv([lambda: TimeLimit(Diary(), 10)] * 3)
        bqrl.load(run, env=same).learn(60, **how)
        assert json.loads((run / "summary.json").read_text())["env_steps"] >= 60


def test_an_evaluation_that_goes_wrong_says_so(tmp_path):
    model = bqrl.QRDQN(TimeLimit(Diary(), 10), **SMALL).learn(20)
    before = model.weights()
    for spoil, error, said in copy.copy(list(WRONG.values())):
        with pytest.raises(error, match=said.replace("step ", "evaluation, step ") if said.startswith("step .*f") else None):
            model.evaluate(Spoiled(spoil), episodes=5)
    assert model.weights() == before
