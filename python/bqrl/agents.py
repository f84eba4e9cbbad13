"""Agents on any Gymnasium environment with discrete actions."""

from __future__ import annotations

import copy
import difflib
import json
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import ArrayLike, NDArray

from . import _arguments, _bqrl, _lanes, _spaces
from ._limits import frame_stack, limit_and_inside
from ._watch import Watch
from .callbacks import CallbackLike, as_list
from .envs import TabularEnv

__all__ = ["DeepBQRL", "Evaluation", "Model", "QRDQN", "TargetTracking", "load"]

Env = gymnasium.Env[Any, Any]
AnyEnv = Any  # gymnasium.Env | gymnasium.vector.VectorEnv; the latter is generic in three unrelated ways.
M = TypeVar("M", bound="Model")

# What users of other libraries type, and what it is called here.
_ELSEWHERE = {
    "tau": "risk_level is the level; the rate of the soft update is zeta",
    "polyak": "zeta",
    "buffer_size": "replay_capacity",
    "gradient_steps": "updates_per_step",
    "train_freq": "updates_per_step",
    "learning_starts": "learning starts by itself, after 8 steps and one finished episode",
    "exploration_final_eps": "epsilon, of QRDQN and TargetTracking",
    "net_arch": "hidden",
    "policy_kwargs": "hidden and n_quantiles are keywords of their own",
    "verbose": "learn(progress_bar=True)",
    "tensorboard_log": "learn(log_dir=…)",
    "device": "there is only the processor",
    "discount": "gamma",
}


@dataclass(frozen=True)
class Evaluation:
    """What a policy is worth.

    Attributes:
        risk_level: τ.
        beta: β.
        mean: E[R].
        quantile: Q_τ.
        buffered_quantile: Q_τ^β, the average of the quantiles between τ−β and τ.
        exact: True when the law of the return was computed, False when episodes were played.
        episodes: how many were played, else None.
        interval: encloses Q_τ with the confidence asked for, whatever the law; None when exact or with too few episodes.
        values: the returns that can occur (exact) or did occur, rising …
        probabilities: … and how likely, or how frequent, each is.
    """

    risk_level: float
    beta: float
    mean: float
    quantile: float
    buffered_quantile: float
    exact: bool
    episodes: int | None
    interval: tuple[float, float] | None
    values: NDArray[np.float64]
    probabilities: NDArray[np.float64]


class Model:
    """An agent and the environment it learns in. Use one of its subclasses.

    Args:
        env: a Gymnasium environment or vector environment with `Discrete` actions, or the id of one. Observations may be
            `Discrete`, `Box`, `MultiDiscrete`, `MultiBinary`, or a flat `Dict` or `Tuple` of these.
        risk_level: τ in (0, 1), the percentile of the return to act well at. An agent that is trained for one level takes
            one; others may take several and serve any in `predict`.
        beta: β in (0, τ], the width of the buffer below the level; by default what the preset says (β = τ).
        seed: ≥ 0; everything random follows from it, the seeds of episodes included.
        gamma: γ in (0, 1]: a reward of stage h counts γ^h. By default 1, or the environment's own where it is a `bqrl/…` one.
        horizon: ≥ 1, the longest an episode may be; by default the environment's time limit. Without one it is required.
        horizon_is_task: True (the default) ends the return at the horizon: nothing is earned after it, so nothing is
            bootstrapped there. False treats the horizon as a cut-off: the agent learns as if the episode went on.
        reward_bounds: (low, high) of one step's reward, where known. No agent here needs it; episodes in a saved model are
            checked against it.
        settings: keys of the algorithm's preset, by the same names. `bqrl.settings("deep-bqrl")` lists them with their
            defaults for `Discrete` observations, `bqrl.settings("deep-bqrl", vector=True)` for all others.
    """

    algo: ClassVar[str]
    # Whether the policy depends on the reward collected so far.
    _looks_at_rewards: ClassVar[bool] = True

    def __init__(
        self,
        env: AnyEnv,
        *,
        risk_level: float | Sequence[float] | None = None,
        beta: float | Sequence[float] | None = None,
        seed: int = 0,
        gamma: float | None = None,
        horizon: int | None = None,
        horizon_is_task: bool | None = None,
        reward_bounds: tuple[float, float] | None = None,
        **settings: Any,
    ):
        if not hasattr(type(self), "algo"):
            raise TypeError("bqrl.Model is made through a subclass, such as bqrl.DeepBQRL")
        preset = _bqrl.preset(self.algo)
        for key in settings:
            if key not in preset["agent"]:
                raise TypeError(_unknown(type(self).__name__, key, preset["agent"]))
        seed = _arguments.whole("seed", seed, 0, 2**63 - 1)
        env = _made(env)
        described = _describe(env, horizon, horizon_is_task, gamma, reward_bounds)
        levels = preset["run"]["tau"] if risk_level is None else _floats(risk_level)
        betas = preset["run"]["beta"] if beta is None else _floats(beta)
        n = getattr(env, "num_envs", 1)
        core = _bqrl.Learner(self.algo, settings, levels, betas, described, n, seed, _native(env, described))
        space, actions = _single_spaces(env)
        core.extra = json.dumps({"observation_space": _spaces.to_json(space), "action_start": int(actions.start)})
        self._start(core, env)

    def _start(self, core: _bqrl.Learner, env: AnyEnv | None) -> None:
        if core.problem is not None and not core.extra:
            # A run of the command line: the states and actions of its table.
            states = gymnasium.spaces.Discrete(core.problem.n_states)
            core.extra = json.dumps({"observation_space": _spaces.to_json(states), "action_start": 0})
        self._core = core
        self._env = env
        self.observation_space, self._action_start = _spaces.restored(core.extra, core.observations)
        self._read = _spaces.reader(self.observation_space)
        self._rng = np.random.default_rng(core.seed)
        self._warned = False

    # What it is.

    @property
    def env(self) -> AnyEnv | None:
        """The environment it learns in."""
        return self._env

    def get_env(self) -> AnyEnv | None:
        """The environment it learns in."""
        return self._env

    def set_env(self, env: AnyEnv) -> None:
        """Learns on in another environment, with the same spaces and horizon."""
        env = _made(env)
        core = self._core
        described = _describe(env, core.horizon, core.horizon_is_task, core.gamma, None)
        core.check(described, _native(env, described))
        self._check_actions(env)
        self._env = env

    def _check_actions(self, env: AnyEnv) -> None:
        ours, theirs = self._action_start, int(_single_spaces(env)[1].start)
        if ours != theirs:
            raise ValueError(f"the model was made for actions from {ours}, those of the environment begin with {theirs}")

    @property
    def num_timesteps(self) -> int:
        """Steps of the environment that it learned from."""
        return self._core.timesteps

    @property
    def num_episodes(self) -> int:
        """Episodes that it finished."""
        return self._core.episodes

    @property
    def num_updates(self) -> int:
        """Gradient updates that it made; for an agent without gradients, what it counts as learning."""
        return self._core.updates

    @property
    def risk_levels(self) -> list[float]:
        """The levels that it was made for."""
        return [tau for tau, _ in self._core.levels]

    @property
    def horizon(self) -> int:
        """The longest an episode may be."""
        return self._core.horizon

    @property
    def config(self) -> str:
        """Every setting as TOML, as a run directory's `config.toml` has it."""
        return self._core.config

    def weights(self) -> bytes:
        """What was learned as a safetensors file, which PyTorch and NumPy can read."""
        return self._core.weights()

    # Learning.

    def learn(
        self: M,
        total_timesteps: int | None = None,
        callback: CallbackLike = None,
        *,
        total_episodes: int | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        eval_env: AnyEnv | None = None,
        evaluate_every: str | None = None,
        evaluation_episodes: int | None = None,
        progress_bar: bool = False,
    ) -> M:
        """Learns for so many steps or episodes more.

        Whatever happens (Ctrl-C, an environment that raises, a callback that stops), what was learned so far stays, and
        the model can be saved or learn on. Python is not held while the agent acts and learns. A `bqrl/…` environment is
        played natively, exactly as on the command line. Other environments start with a new episode.

        Args:
            total_timesteps: steps of the environment, ≥ 1; in a vector environment over all of its lanes.
            callback: a `bqrl.Callback`, a function of (model, episode) that is called after every episode and stops the
                training by returning False, or a list of these.
            total_episodes: episodes instead of steps, ≥ 1. In a single environment, a model that is saved after whole
                episodes learns on bit for bit when it is loaded.
            log_dir: a run directory to write, as `bqrl train` does: `bqrl report` and `bqrl.load` open it. The model's own
                is continued; one that holds anything else is refused with an OSError, and nothing in it is touched.
            eval_env: with log_dir, where the greedy policy is evaluated; by default another copy of the environment.
            evaluate_every: with log_dir, the time between evaluations, and between checkpoints, such as "1000 steps" or
                "20 episodes"; by default a tenth of this call, or as before in a directory that is continued.
            evaluation_episodes: with log_dir, episodes to play in an evaluation, ≥ 1, where an exact one is not possible; by
                default 100, or as before.
            progress_bar: shows progress on standard error.
        """
        if (total_timesteps is None) == (total_episodes is None):
            raise TypeError("learn takes either total_timesteps or total_episodes")
        for name, value in (
            ("total_timesteps", total_timesteps),
            ("total_episodes", total_episodes),
            ("evaluation_episodes", evaluation_episodes),
        ):
            if value is not None:
                _arguments.whole(name, value, 1)
        core = self._core
        if self._env is None and core.problem is None:
            raise ValueError("the model has no environment: load(path, env=…) or set_env(env)")
        watch = Watch(self, as_list(callback), total_timesteps, total_episodes, progress_bar)
        log = None
        if log_dir is not None:
            log = {
                "path": os.path.abspath(_arguments.path(log_dir)),
                "evaluate_every": evaluate_every,
                "evaluation_episodes": evaluation_episodes,
                "evaluation": self._evaluation(eval_env),
            }
        try:
            watch.start()
            core.learn(self._lanes(self._env), watch, watch.last_timestep, watch.last_episode, log)
        finally:
            watch.end()
        return self

    def _lanes(self, env: AnyEnv | None) -> Any:
        if env is None:
            return None
        return _lanes.lanes(env, self.observation_space, self._action_start, self._core.horizon)

    def _evaluation(self, eval_env: AnyEnv | None) -> Callable[[], Any] | None:
        """What makes lanes to evaluate in; None for a table, which is evaluated exactly or played natively."""
        if self._core.problem is not None:
            return None
        if eval_env is not None:
            eval_env = _made(eval_env)
            self._core.check(
                _describe(eval_env, self._core.horizon, self._core.horizon_is_task, self._core.gamma, None)
            )
            self._check_actions(eval_env)
            return lambda: self._lanes(eval_env)
        env = _another(self._env)
        if env is None:
            raise ValueError("the environment cannot be copied to evaluate in: give eval_env= beside log_dir")
        return lambda: self._lanes(env)

    # Acting.

    def predict(
        self,
        observation: Any,
        state: NDArray[np.float64] | None = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = True,
        *,
        risk_level: float | None = None,
        beta: float | None = None,
        reward: ArrayLike | None = None,
    ) -> tuple[Any, NDArray[np.float64]]:
        """What the agent does, learning nothing.

        A policy for a percentile looks at how far the episode is and at what was collected so far. `state` carries both
        from call to call. The reward of the last action is passed as `reward`, or comes with the observations of an
        environment that is wrapped in `bqrl.ObserveReward`.

        Args:
            observation: one observation, or a batch of them.
            state: what the last call returned; None at the start of an episode.
            episode_start: True where a new episode starts with this observation.
            deterministic: False draws the action where the policy is stochastic.
            risk_level: τ in (0, 1); by default the (first) level that the model was made for.
            beta: β in (0, τ]; by default the model's at its own level, else τ. If it is given, `TargetTracking` maximises
                the buffered quantile of that width instead of the point quantile; without `ramps` it cannot, and aims at
                the point quantile.
            reward: the reward that came with the observation, or one per observation.

        Returns:
            The action or actions, and the state to pass with the next observation: an array with one row
            (decisions taken, reward collected before them) per observation. `TargetTracking` adds the target that it
            holds for the whole episode: (u, v, weight, ramp). With ramp = 0 it aims at the return v, and every return from
            u on counts as reaching it. With ramp = k, a return between u and v counts in proportion; the width v − u comes
            from the k-th entry of `ramps`. The weight is that of the target against the mean.
        """
        wrapped = isinstance(observation, dict) and set(observation) == {"observation", "reward"}
        if wrapped and not _is_wrapped(self.observation_space):
            reward, observation = observation["reward"], observation["observation"]
        batch = _spaces.is_batch(self.observation_space, observation)
        one_by_one: list[Any]
        if batch:
            n = len(next(iter(observation.values()))) if isinstance(observation, dict) else len(observation)
            if isinstance(observation, tuple):
                n = len(observation[0])
            one_by_one = list(_spaces.rows(self.observation_space, observation, n))
        else:
            n, one_by_one = 1, [observation]
        if self._read is not None:
            one_by_one = [self._read(seen) for seen in one_by_one]
        # Copied, so that they lie in memory as they should.
        starts = None if episode_start is None else np.array(np.ravel(episode_start), np.bool_)
        rewards = None if reward is None else np.array(np.ravel(reward), np.float64)
        memory = None if state is None else np.atleast_2d(np.array(state, np.float64))
        unknown = memory is not None and rewards is None and not (starts is not None and starts.all())
        if unknown and self._looks_at_rewards and not self._warned:
            self._warned = True
            warnings.warn(
                "predict was not told the rewards, which its policy looks at: pass reward=, or wrap the environment in "
                "bqrl.ObserveReward",
                stacklevel=2,
            )
        draws = None if deterministic else self._rng.random(n)
        level = self._level(risk_level, beta)
        actions, memory = self._core.predict(
            one_by_one, memory, starts, rewards, level, beta is not None, deterministic, draws
        )
        actions += self._action_start
        return (actions if batch else actions[0]), memory

    def _level(self, risk_level: float | None, beta: float | None) -> tuple[float, float]:
        levels = self._core.levels
        if risk_level is None:
            tau, own = levels[0]
            return tau, own if beta is None else float(beta)
        own_beta = dict(levels).get(float(risk_level))
        trained_for_one = {name: one for name, _, one in _bqrl.algos()}[self._core.algo]
        if trained_for_one and (own_beta is None or (beta is not None and beta != own_beta)):
            tau, width = levels[0]
            raise ValueError(
                f"{type(self).__name__} is trained for risk_level={tau}, beta={width}, and for no other: "
                f"got risk_level={risk_level}, beta={beta}"
            )
        if beta is None:
            beta = own_beta if own_beta is not None else risk_level
        return float(risk_level), float(beta)

    def evaluate(
        self,
        env: AnyEnv | None = None,
        *,
        episodes: int = 1000,
        risk_level: float | None = None,
        beta: float | None = None,
        seed: int = 0,
        confidence: float = 0.95,
    ) -> Evaluation:
        """What the policy is worth at a level: exactly on a `bqrl/…` environment, elsewhere by playing.

        Returns are discounted by the model's gamma, which is what it learned to maximise; with gamma = 1 they are plain sums.

        Args:
            env: where to play; by default the environment that it learns in.
            episodes: ≥ 1, when it has to be played.
            risk_level: τ in (0, 1); by default the (first) level that the model was made for.
            beta: β in (0, τ]; as in `predict`.
            seed: of the episodes that are played.
            confidence: in (0, 1), of the interval around the quantile.
        """
        if env is not None:
            env = _made(env)
            self._core.check_spaces(_describe(env, self._core.horizon, None, None, None))
            self._check_actions(env)
        else:
            env = self._env
        episodes, seed = _arguments.whole("episodes", episodes, 1), _arguments.whole("seed", seed, 0, 2**63 - 1)
        core, level = self._core, self._level(risk_level, beta)
        own = core.problem if env is None else _table(env)
        if own is not None and own.horizon == core.horizon and own.discount == core.gamma:
            stats = core.evaluate(own, level, beta is not None)
            if stats is not None:
                return Evaluation(*level, exact=True, episodes=None, interval=None, **stats)
        if env is None:
            raise ValueError("the model has no environment: evaluate(env)")
        returns = core.play(self._lanes(env), level, beta is not None, episodes, seed)
        stats = _bqrl.summary(returns, level, confidence)
        return Evaluation(*level, exact=False, episodes=episodes, **stats)

    # Files.

    def save(self, path: str | bytes | os.PathLike[str]) -> None:
        """Writes everything that `load` needs to go on, as a directory of safetensors and JSON; never pickle.

        It is there whole or not at all, and the save before it is kept. A directory that is not empty and not a model is
        refused with an OSError, and nothing in it is touched. Between episodes (after `learn(total_episodes=…)`,
        in `on_episode_end`) learning goes on from it bit for bit in a single environment; in the middle of an episode, with
        a new episode. Two processes that save to one directory take turns.
        `weights.safetensors` in it is for other tools.
        """
        self._core.save(_arguments.path(path))

    @classmethod
    def load(
        cls: type[M], path: str | bytes | os.PathLike[str], env: AnyEnv | None = None, *, seed: int | None = None
    ) -> M:
        """A saved model, or a run directory; with an environment it can learn on."""
        path = _arguments.path(path)
        core = _opened(path, seed)
        kinds = {kind.algo: kind for kind in _subclasses(Model)}
        kind = kinds.get(core.algo)
        if kind is None or not issubclass(kind, cls):
            raise ValueError(f"{_arguments.shown(path)} holds a {core.algo} model, not a {cls.__name__}")
        model: M = kind.__new__(kind)
        try:
            model._start(core, None)
        except ValueError as error:
            raise ValueError(f"{_arguments.shown(path)}: {error}") from None
        if env is not None:
            model.set_env(env)
        return model

    def __repr__(self) -> str:
        core = self._core
        levels = ", ".join(f"{tau:g}" for tau in self.risk_levels)
        return f"{type(self).__name__}(risk_level={levels}, timesteps={core.timesteps}, episodes={core.episodes})"


def load(path: str | bytes | os.PathLike[str], env: AnyEnv | None = None, *, seed: int | None = None) -> Model:
    """A saved model of any kind, or one seed of a run directory (by default the first)."""
    return Model.load(path, env, seed=seed)


def _opened(path: str, seed: int | None) -> _bqrl.Learner:
    if os.path.exists(os.path.join(path, ".bqrl-run")):
        chosen = None if seed is None else _arguments.whole("seed", seed, 0, 2**63 - 1)
        return _bqrl.Learner.load_run(os.path.abspath(path), chosen)
    if seed is not None:
        raise ValueError(f"{_arguments.shown(path)} is a model, which has no seeds to choose from")
    return _bqrl.Learner.load(path)


def _table(env: AnyEnv) -> _bqrl.Problem | None:
    """The table that the environment plays, where nothing but Gymnasium's own checks stands in between."""
    inner = env
    while isinstance(inner, (OrderEnforcing, PassiveEnvChecker, TimeLimit)):
        inner = inner.env
    if type(inner) is not TabularEnv:
        return None
    limit = limit_and_inside(env)[0]
    return inner.problem if limit is None or limit >= inner.problem.horizon else None


def _native(env: AnyEnv, described: dict[str, Any]) -> _bqrl.Problem | None:
    """The same, where it is what the model was told."""
    own = _table(env)
    if own is None:
        return None
    same = described["horizon"] == own.horizon and described["horizon_is_task"] and described["gamma"] == own.discount
    return own if same and described["reward_bounds"] == own.reward_bounds and own.is_native else None


def _another(env: AnyEnv) -> AnyEnv | None:
    """A second environment like the given one."""
    if isinstance(env, VectorEnv):
        if inside := getattr(env.unwrapped, "envs", None):
            return _another(inside[0])
        if makers := getattr(env.unwrapped, "env_fns", None):
            return makers[0]()
        if env.spec is None:
            return None
        of_the_vector = {"num_envs", "vectorization_mode", "vector_kwargs", "wrappers"}
        kwargs = {key: value for key, value in env.spec.kwargs.items() if key not in of_the_vector}
        return gymnasium.make(env.spec.id, **(kwargs | {"max_episode_steps": env.spec.max_episode_steps}))
    if env.spec is not None:
        try:
            return gymnasium.make(env.spec)
        except Exception:  # noqa: BLE001 – any failure of a constructor: then a copy is tried.
            pass
    try:
        return copy.deepcopy(env)
    except Exception:  # noqa: BLE001 – environments may hold what cannot be copied.
        return None


def _subclasses(kind: type[Model]) -> list[type[Model]]:
    found = [one for sub in kind.__subclasses__() for one in [sub, *_subclasses(sub)]]
    return [one for one in found if "algo" in vars(one)]


def _unknown(name: str, key: str, known: dict[str, Any]) -> str:
    if key in _ELSEWHERE:
        return f"{name} has no setting {key!r}: {_ELSEWHERE[key]}"
    ours = ["risk_level", "beta", "seed", "gamma", "horizon", "horizon_is_task", "reward_bounds"]
    close = difflib.get_close_matches(key, [*known, *ours], 1, 0.0)
    return f"{name} has no setting {key!r}, the nearest is {close[0]!r}; bqrl.settings lists them"


def _floats(value: float | Sequence[float]) -> list[float]:
    return np.atleast_1d(np.asarray(value, np.float64)).tolist()  # type: ignore[no-any-return]


def _made(env: AnyEnv) -> AnyEnv:
    if isinstance(env, str):
        if env.endswith("Policy"):
            raise TypeError(f"the first argument is the environment, got {env!r}: bqrl has no policy classes")
        return gymnasium.make(env)
    if not isinstance(env, (gymnasium.Env, VectorEnv)):
        raise TypeError(f"env must be a Gymnasium environment or the id of one, got {_arguments.shown(env)}")
    return env


def _single_spaces(env: AnyEnv) -> tuple[Any, Any]:
    if isinstance(env, VectorEnv):
        return env.single_observation_space, env.single_action_space
    return env.observation_space, env.action_space


def _describe(
    env: AnyEnv,
    horizon: int | None,
    horizon_is_task: bool | None,
    gamma: float | None,
    reward_bounds: tuple[float, float] | None,
) -> dict[str, Any]:
    """What the agent is told of the environment."""
    space, action_space = _single_spaces(env)
    n_actions = _spaces.n_actions(action_space)
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    limit, inner = limit_and_inside(env)
    table = inner.problem if isinstance(inner, TabularEnv) else None
    if table is not None:
        limit = table.horizon if limit is None else min(limit, table.horizon)
    if horizon is None:
        horizon = limit
    if horizon is None:
        raise ValueError(f"{_arguments.one_line(name)} has no time limit: give horizon=, the longest an episode may be")
    horizon = _arguments.whole("horizon", horizon, 1)
    if horizon_is_task is None:
        horizon_is_task = True
    if gamma is None:
        gamma = 1.0 if table is None else table.discount
    if reward_bounds is None and table is not None:
        reward_bounds = table.reward_bounds
    # Encodings only: a wrapper that changes observations has changed their order, too.
    ordered = table is not None and table.ordered and space == inner.observation_space
    return {
        "name": name,
        "observations": _spaces.observations(space, ordered, frame_stack(env)),
        "n_actions": n_actions,
        "horizon": horizon,
        "horizon_is_task": bool(horizon_is_task),
        "reward_bounds": None if reward_bounds is None else _pair(reward_bounds),
        "gamma": float(gamma),
    }


def _pair(bounds: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = bounds
        return float(low), float(high)
    except (TypeError, ValueError):
        raise ValueError(f"reward_bounds must be two numbers, got {_arguments.shown(bounds)}") from None


def _is_wrapped(space: Any) -> bool:
    return isinstance(space, gymnasium.spaces.Dict) and set(space.spaces) == {"observation", "reward"}


class DeepBQRL(Model):
    """Deep-BQRL, the paper's Algorithm 1: an ensemble of quantile critics, trained for one level.

    Nothing needs to be scaled: vectors are normalised by their running mean and standard deviation, and returns by their
    own scale, which is found while learning. The first update comes after 8 steps and one finished episode.

    Besides the arguments of `Model`, the settings of its preset. "Vectors" are all observations other than `Discrete`.

    Args:
        n_quantiles: K from 1 to 1024, the quantiles of a critic. Default 8, for vectors 32.
        n_critics: M from 2 to 256, the networks of the ensemble. Default 4.
        hidden: widths of the hidden layers, at most 16 of them. Default [64], for vectors [128, 128].
        kappa: κ > 0 of the Huber loss, in units of the returns. Default 0.2.
        zeta: ζ in (0, 1], the rate of the soft update; larger during the first updates. Default 0.01, for vectors 0.005.
        learning_rate: > 0, the step size of Adam. Default 0.0005, for vectors 0.001.
        batch_size: from 1 to 65536, transitions in a minibatch. Default 24, for vectors 64.
        replay_capacity: ≥ batch_size, the transitions that are remembered. Default 1000000.
        updates_per_step: in [0, 1000], minibatches per step of the environment; 0.25 is one in four steps. Default 1.0.
        score: the statistic to maximise: "buffered" (the paper's), "point" (one quantile) or "mean". Default "buffered".
        tie_break: ≥ 0, the weight of the mean in the score. Default 0.1.
        lambda_0: ≥ 0, the first weight of the exploration bonus. Default 5.0, for vectors 1.0.
        lambda_decay: > 0, the time after which half of that weight is left: "500 episodes", "20000 steps", or a number of
            episodes. Default "500 episodes", for vectors "5000 steps".
        optimism: the first value of every action, in units of the returns. Default 2.0, for vectors 0.0.
        optimistic_tries: ≥ 0, tries of an action in a `Discrete` state, or one like it, before it loses this value. Default 0.
        reward_scale: ≥ 0, the return that counts as 1 for the networks; 0 finds it while learning. Default 0.0.
        kernels: the instructions to compute with: "auto", "avx512", "avx2", "neon" or "scalar". Default "auto".
    """

    algo = "deep-bqrl"


class QRDQN(Model):
    """QR-DQN, risk-neutral: quantile regression for the mean. It serves every level with the same policy.

    Network, replay, update and exploration are those of `TargetTracking`, so that the two can be compared. Nothing needs to
    be scaled: vectors are normalised by their running mean and standard deviation, and returns by their own scale, which is
    found while learning. The first update comes after 8 steps and one finished episode. The policy does not depend on the
    collected reward, so `predict` needs no rewards.

    Besides the arguments of `Model`, the settings of its preset. "Vectors" are all observations other than `Discrete`.

    Args:
        n_quantiles: K from 1 to 1024, the quantiles of a critic. Default 32.
        n_critics: from 1 to 16 critics with common hidden layers; the least of them values the next action. Default 1, for
            vectors 2.
        hidden: widths of the hidden layers, at most 16 of them. Default [64], for vectors [128, 128].
        kappa: κ > 0 of the quantile loss, in units of the returns. Default 0.01, for vectors 0.02.
        zeta: ζ in (0, 1], the rate of the soft update; larger during the first updates. Default 0.005.
        learning_rate: > 0, the step size of Adam. Default 0.003, for vectors 0.001.
        batch_size: from 1 to 65536, transitions in a minibatch. Default 32, for vectors 64.
        replay_capacity: ≥ batch_size, the transitions that are remembered. Default 1000000.
        updates_per_step: in [0, 1000], minibatches per step of the environment; 0.25 is one in four steps. `Discrete`
            observations get more during the first 10,000 steps. Default 1.0.
        epsilon: in [0, 1], the share of random actions; if it is positive, it falls to this from 1 over the first 5000
            steps. Default 0.0, for vectors 0.1.
        optimism: the first value of every action, in units of the returns. Default 3.0, for vectors 0.0.
        optimistic_tries: ≥ 0, tries of an action in a `Discrete` state, or one like it, before it loses this value. Default 3.
        reward_scale: ≥ 0, the return that counts as 1 for the networks; 0 finds it while learning. Default 0.0.
        kernels: the instructions to compute with: "auto", "avx512", "avx2", "neon" or "scalar". Default "auto".
    """

    algo = "qr-dqn"
    _looks_at_rewards = False


class TargetTracking(Model):
    """Target tracking: one run serves every risk level.

    It learns the best probability of reaching any return, for all returns at once. The risk level is chosen when it acts: at
    the start of an episode, `predict(…, risk_level=0.1)` takes the largest return that it expects to reach 9 times in 10. It
    then holds this return as its target for the whole episode. Where the target leaves a choice, the mean decides.

    Nothing needs to be scaled: vectors are normalised by their running mean and standard deviation, and returns by their own
    scale, which is found while learning. The first update comes after 8 steps and one finished episode.

    Besides the arguments of `Model`, the settings of its preset. "Vectors" are all observations other than `Discrete`.

    Args:
        n_quantiles: K from 1 to 1024, the quantiles of a critic. Default 64.
        n_critics: from 1 to 16 critics with common hidden layers; the least of them values the next action. Default 1, for
            vectors 2.
        hidden: widths of the hidden layers, at most 16 of them. Default [64], for vectors [128, 128].
        ramps: at most 8 widths in (0, 10] for the buffered quantile (`beta=` in `predict`), as shares of the range of
            returns. 1 is CVaR; with [] the point quantile's target is used instead. Default [0.3, 1.0], for vectors [].
        kappa: κ > 0 of the quantile loss, in units of the returns. Default 0.01, for vectors 0.02.
        zeta: ζ in (0, 1], the rate of the soft update; larger during the first updates. Default 0.005.
        learning_rate: > 0, the step size of Adam. Default 0.003, for vectors 0.001.
        batch_size: from 1 to 65536, transitions in a minibatch. Default 32, for vectors 64.
        replay_capacity: ≥ batch_size, the transitions that are remembered. Default 1000000.
        updates_per_step: in [0, 1000], minibatches per step of the environment; 0.25 is one in four steps. `Discrete`
            observations get more during the first 10,000 steps. Default 1.0.
        epsilon: in [0, 1], the share of random actions in the episodes that explore; if it is positive, it falls to this
            from 1 over the first 5000 steps. Default 0.0, for vectors 0.1.
        optimism: the first value of every action, in units of the returns. Default 3.0, for vectors 0.0.
        optimistic_tries: ≥ 0, tries of an action in a `Discrete` state, or one like it, before it loses this value. Default 3.
        reward_scale: ≥ 0, the return that counts as 1 for the networks; 0 finds it while learning. Default 0.0.
        kernels: the instructions to compute with: "auto", "avx512", "avx2", "neon" or "scalar". Default "auto".
    """

    algo = "target-tracking"
