"""Mistakes are answered with the right exception that says what and where, and nothing learned is lost."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from support import SMALL, Diary, Shaped

import bqrl


def test_spaces_that_are_not_supported():
    with pytest.raises(TypeError, match="Discrete action space, got Box"):
        bqrl.DeepBQRL("Pendulum-v1")
    nested = spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)})})
    with pytest.raises(TypeError, match="flat Dict"):
        bqrl.DeepBQRL(Shaped(nested), horizon=5)
    with pytest.raises(TypeError, match="got Text"):
        bqrl.DeepBQRL(Shaped(spaces.Text(3)), horizon=5)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (dict(kapa=1.0), TypeError, "has no setting 'kapa', the nearest is 'kappa'"),
        (dict(risk_leve=0.1), TypeError, "the nearest is 'risk_level'"),
        (dict(tau=0.005), TypeError, "zeta"),
        (dict(buffer_size=10), TypeError, "it is called replay_capacity here"),
        (dict(lr=0.1), TypeError, "it is called learning_rate here"),
        (dict(train_freq=4), TypeError, "updates_per_step here, train_freq=4 is updates_per_step=0.25"),
        (dict(policy="MlpPolicy"), TypeError, "the network follows from the observations"),
        (dict(exploration_fraction=0.1), TypeError, "first 5000 steps"),
        (dict(foo=1), TypeError, r"^DeepBQRL has no setting 'foo'; help\(bqrl.DeepBQRL\) lists them$"),
        (dict(risk_level=1.5), ValueError, r"^risk_level must lie in \(0, 1\), got 1.5$"),
        (dict(risk_level=[0.1, 0.5]), ValueError, "one level"),
        (dict(risk_level=0.1, beta=0.2), ValueError, r"^beta must lie in \(0, risk_level\] = \(0, 0.1\], got 0.2$"),
        (dict(n_critics=1), ValueError, "^n_critics must lie in 2 to 256, got 1$"),
        (dict(hidden="wide"), ValueError, "hidden|sequence"),
        (dict(hidden=object()), TypeError, "hidden must be a number"),
        (dict(zeta=0), ValueError, r"^zeta must lie in \(0, 1\], got 0$"),
        (dict(n_quantiles=1.5), ValueError, "n_quantiles: .* a whole number that is not negative$"),
        (dict(risk_level="low"), TypeError, "risk_level must be a number or a list of numbers, got 'low'"),
        (dict(gamma=0.0), ValueError, r"gamma must lie in \(0, 1\]"),
        (dict(seed=-1), ValueError, "seed"),
        (dict(horizon=0), ValueError, "horizon"),
    ],
)
def test_settings(arguments, error, said):
    with pytest.raises(error, match=said):
        bqrl.DeepBQRL("CartPole-v1", **arguments)


def test_what_is_no_environment():
    with pytest.raises(TypeError, match="first argument is the environment"):
        bqrl.DeepBQRL("MlpPolicy")
    with pytest.raises(TypeError, match="first argument is the environment"):
        bqrl.QRDQN("MlpPolicy", gymnasium.make("CartPole-v1"))
    with pytest.raises(TypeError, match="one argument without a name"):
        bqrl.QRDQN("CartPole-v1", 0.1)
    with pytest.raises(TypeError, match="Gymnasium environment"):
        bqrl.DeepBQRL(3)
    with pytest.raises(gymnasium.error.NameNotFound):
        bqrl.DeepBQRL("NoSuchGame-v0")
    with pytest.raises(TypeError, match="through a subclass"):
        bqrl.Model("CartPole-v1")


def test_learn_wants_one_of_two_lengths():
    model = bqrl.DeepBQRL("CartPole-v1", **SMALL)
    for arguments in ({}, {"total_timesteps": 1, "total_episodes": 1}):
        with pytest.raises(TypeError, match="either"):
            model.learn(**arguments)
    for wrong in (0, -3, 1.5, "many"):
        with pytest.raises(ValueError, match="total_timesteps"):
            model.learn(total_timesteps=wrong)
    with pytest.raises(TypeError, match="callback"):
        model.learn(10, callback=3)


class Spoiled(gymnasium.Wrapper):
    """Goes wrong once, at step 3 of episode 3."""

    def __init__(self, env, spoil):
        super().__init__(env)
        self.spoil, self.t, self.episode = spoil, 0, 0

    def reset(self, **arguments):
        self.t, self.episode = 0, self.episode + 1
        return self.env.reset(**arguments)

    def step(self, action):
        self.t += 1
        result = self.env.step(action)
        return self.spoil(*result) if (self.t, self.episode) == (3, 3) else result


def boom(*_):
    raise ZeroDivisionError("the simulator fell over")


@pytest.mark.parametrize(
    ("spoil", "error", "said"),
    [
        (boom, ZeroDivisionError, "^the simulator fell over$"),
        (lambda s, r, *rest: (s * np.nan, r, *rest), ValueError, "episode 3, step 3: want finite numbers, got NaN at position 0"),
        (lambda s, r, *rest: (s, np.inf, *rest), ValueError, "episode 3, step 3: want a finite reward, got inf"),
        (lambda s, r, *rest: (s, "much", *rest), TypeError, "episode 3, step 3: want a number as reward"),
        (lambda s, r, *rest: (s[:2], r, *rest), ValueError, r"episode 3, step 3: .*shape \[3\], got \[2\]"),
        (lambda s, r, *rest: (s.astype(str), r, *rest), TypeError, "episode 3, step 3: .*numbers, got dtype"),
        (lambda s, r, *rest: (None, r, *rest), ValueError, r"episode 3, step 3: .*shape \[3\], got \[\]"),
    ],
)
def test_an_environment_that_goes_wrong(spoil, error, said, tmp_path):
    model = bqrl.DeepBQRL(Spoiled(TimeLimit(Diary(), 10), spoil), **SMALL)
    with pytest.raises(error, match=said):
        model.learn(total_episodes=10)
    # Two whole episodes, of 2 and 3 steps, and two steps of the third.
    assert (model.num_episodes, model.num_timesteps) == (2, 7)
    updates = model.num_updates
    model.save(tmp_path / "model")
    model.learn(total_episodes=5)
    assert model.num_episodes == 7 and model.num_updates > updates


def test_a_vector_environment_that_does_not_end():
    env = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1").unwrapped] * 2)
    with pytest.raises(RuntimeError, match="environment 0 did not end at the horizon of 2: wrap"):
        bqrl.DeepBQRL(env, horizon=2, **SMALL).learn(total_timesteps=10)


def test_divergence_is_reported():
    model = bqrl.DeepBQRL("CartPole-v1", learning_rate=3e38, **SMALL)
    with pytest.raises(FloatingPointError, match=r"episode \d+, update \d+"):
        model.learn(total_timesteps=5000)
