"""What all agents have in common: an environment, learning, acting, measuring, saving."""

from __future__ import annotations

import copy
import functools
import inspect
import json
import os
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray

from . import _arguments, _bqrl, _described, _elsewhere, _lanes, _offline, _spaces
from ._described import AnyEnv as AnyEnv
from ._measure import Evaluation, exactly, from_episodes
from ._watch import Watch
from .callbacks import CallbackLike, as_list

Env = gymnasium.Env[Any, Any]
M = TypeVar("M", bound="Model")

Init = TypeVar("Init", bound=Callable[..., None])


def named(init: Init) -> Init:
    """An `__init__` whose refusals of unknown keywords name the right one. Type checkers and `help` see its own parameters."""
    known = [name for name in inspect.signature(init).parameters if name != "self"]

    @functools.wraps(init)
    def checked(self: Any, /, *args: Any, **kwargs: Any) -> None:
        kind = type(self).__name__
        if args and isinstance(args[0], str):
            _elsewhere.refuse_policy(kind, args[0])
        if len(args) > 1:
            raise TypeError(f"{kind} takes one argument without a name, the environment, got {_arguments.shown(args)}")
        for key in kwargs:
            if key not in known:
                raise TypeError(_elsewhere.unknown(kind, key, known))
        init(self, *args, **kwargs)

    return cast(Init, checked)


@dataclass(frozen=True, eq=False)
class ObservationMoments:
    """The running moments of vector observations: the networks see (observation − mean) / std, cut at ±5.

    Attributes:
        mean: the mean of every number, in the order of the flattened observation.
        std: their standard deviations; a number that never changed has 0, and is seen as 0.
        count: how many observations were seen.
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    count: int


class Model:
    """An agent and the environment it learns in. Use one of its subclasses, whose arguments are keywords of their own."""

    algo: ClassVar[str]
    # Whether the policy depends on the reward collected so far, and whether it has one for every level.
    _looks_at_rewards: ClassVar[bool] = True
    _has_a_policy_per_level: ClassVar[bool] = False

    def __init__(self, env: AnyEnv) -> None:
        raise TypeError("bqrl.Model is made through a subclass, such as bqrl.DeepBQRL")

    def _make(
        self,
        env: AnyEnv,
        risk_level: float | Sequence[float],
        beta: float | Sequence[float] | None,
        seed: int,
        gamma: float | None,
        horizon: int | None,
        horizon_is_task: bool,
        reward_bounds: tuple[float, float] | None,
        settings: dict[str, Any],
        normalize_observations: bool = True,
    ) -> None:
        """Makes the agent. A setting that is None keeps the preset's value, which depends on the observations."""
        settings = {key: value for key, value in settings.items() if value is not None}
        seed = _arguments.whole("seed", seed, 0, 2**63 - 1)
        normalize = _arguments.flag("normalize_observations", normalize_observations)
        env = _described.made(env)
        described = _described.describe(env, horizon, horizon_is_task, gamma, reward_bounds)
        levels = _floats("risk_level", risk_level)
        betas = [] if beta is None else _floats("beta", beta)
        n = getattr(env, "num_envs", 1)
        native = _described.native(env, described)
        core = _bqrl.Learner(self.algo, settings, levels, betas, described, n, seed, native, normalize, _described.plain_arguments(env))
        if capacity := settings.get("replay_capacity"):
            _warn_of_memory(capacity, n, described["observations"])
        space, actions = _described.single_spaces(env)
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
        return getattr(self._env, "given", self._env) if isinstance(self._env, VectorEnv) else self._env

    def get_env(self) -> AnyEnv | None:
        """The environment it learns in."""
        return self.env

    def set_env(self, env: AnyEnv) -> None:
        """Learns on in another environment, with the same spaces and horizon."""
        env = _described.made(env)
        core = self._core
        described = _described.describe(env, core.horizon, core.horizon_is_task, core.gamma, None)
        core.check(described, _described.native(env, described))
        self._check_actions(env)
        self._env = env

    def _check_actions(self, env: AnyEnv) -> None:
        ours, theirs = self._action_start, int(_described.single_spaces(env)[1].start)
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
    def observation_moments(self) -> ObservationMoments | None:
        """What vectors are normalised by. None where nothing is: `Discrete` observations, images, `normalize_observations=False`."""
        moments = self._core.observation_moments
        return None if moments is None else ObservationMoments(*moments)

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
        total_timesteps: float | None = None,
        callback: CallbackLike = None,
        *,
        total_episodes: float | None = None,
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
            total_timesteps: steps of the environment, a whole number ≥ 1 (1e4 is one); in a vector environment over all of its lanes.
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
            progress_bar: shows how far it is, the time to go and quantiles of the last 100 returns: on standard error in a
                terminal, as a bar in a notebook, and not at all in a pipe or a file.
        """
        if (total_timesteps is None) == (total_episodes is None):
            raise TypeError("learn takes either total_timesteps or total_episodes")
        steps = None if total_timesteps is None else _arguments.whole("total_timesteps", total_timesteps, 1)
        episodes = None if total_episodes is None else _arguments.whole("total_episodes", total_episodes, 1)
        if evaluation_episodes is not None:
            evaluation_episodes = _arguments.whole("evaluation_episodes", evaluation_episodes, 1)
        core = self._core
        if self._env is None and core.problem is None:
            raise ValueError("the model has no environment: load(path, env=…) or set_env(env)")
        watch = Watch(self, as_list(callback), steps, episodes, progress_bar)
        log = None
        if log_dir is not None:
            log = {
                "path": os.path.abspath(_arguments.path(log_dir)),
                "evaluate_every": evaluate_every,
                "evaluation_episodes": evaluation_episodes,
                "evaluation": self._evaluation(eval_env),
                "seeds": None,
                "joins": False,
                "replaces": False,
            }
        try:
            watch.start()
            core.learn(self._lanes(self._env), watch, watch.last_timestep, watch.last_episode, log)
        finally:
            watch.end()
        return self

    def _learn_in(self, log: dict[str, Any], steps: int | None, episodes: int | None, progress_bar: bool) -> None:
        """Learns as one seed of a run, until it has made so many steps or episodes in all."""
        core = self._core
        left = None if steps is None else max(steps - core.timesteps, 0)
        more = None if episodes is None else max(episodes - core.episodes, 0)
        watch = Watch(self, [], left, more, progress_bar)
        try:
            core.learn(self._lanes(self._env), watch, steps, episodes, log | {"evaluation": self._evaluation(None)})
        finally:
            watch.end()

    def learn_offline(
        self: M,
        dataset: Any,
        callback: CallbackLike = None,
        *,
        passes: int = 1,
        progress_bar: bool = False,
    ) -> M:
        """Learns from logged episodes, by the same updates as in an environment; nothing is played.

        The agent sees every transition of the log as if it had taken the logged action. It does not know what other actions
        would have done: where the log has none of them, its values are guesses, and a policy that looks good to it may be bad.
        Measure it with `evaluate` in an environment where there is one. `PPO`, `TRPO` and `QPPO` learn from their own episodes only.

        Args:
            dataset: a Minari dataset; or a dictionary of arrays with one row per step, episodes one after another: observations,
                actions, rewards, terminations; and truncations and next_observations where episodes are cut off.
            callback: as for `learn`.
            passes: ≥ 1, how often the log is gone through. A transition is remembered once per pass, so `replay_capacity` should
                hold them all; `UCBBQRL` counts transitions and takes one pass.
            progress_bar: as for `learn`.
        """
        if self.algo in ("ppo", "trpo", "qppo"):
            raise TypeError(f"{type(self).__name__} learns from its own episodes only, not from a log")
        passes = _arguments.whole("passes", passes, 1, 1 if self.algo == "ucb-bqrl" else 2**20)
        core = self._core
        first, n_actions = self._action_start, core.n_actions
        log = _offline.episodes(dataset, self.observation_space, first, n_actions, core.horizon)
        if (optimism := self._optimism()) > 0 and (missing := _offline.untried(log, self.observation_space, n_actions)):
            warnings.warn(
                f"{missing} pairs of a logged observation and an action are not in the log, and optimism={optimism:g} makes such actions "
                "look good: make the model with optimism=0.0",
                stacklevel=2,
            )
        actions = passes * [action - first for episode in log for action in episode.actions]
        watch = Watch(self, as_list(callback), len(actions), None, progress_bar)
        try:
            watch.start()
            core.learn(_offline.Log(log, self.observation_space), watch, watch.last_timestep, None, None, actions)
        finally:
            watch.end()
        return self

    def _optimism(self) -> float:
        """The setting; 0 where the algorithm has none."""
        found = re.search(r"^optimism = (.+)$", self.config, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def _lanes(self, env: AnyEnv | None) -> Any:
        if env is None:
            return None
        return _lanes.lanes(env, self.observation_space, self._action_start, self._core.horizon)

    def _evaluation(self, eval_env: AnyEnv | None) -> Callable[[], Any] | None:
        """What makes lanes to evaluate in; None for a table, which is evaluated exactly or played natively."""
        if self._core.problem is not None:
            return None
        if eval_env is not None:
            eval_env = _described.made(eval_env)
            self._core.check(
                _described.describe(eval_env, self._core.horizon, self._core.horizon_is_task, self._core.gamma, None)
            )
            self._check_actions(eval_env)
            return lambda: self._lanes(eval_env)
        env = _described.another(self._env)
        if env is None:
            raise ValueError("the environment cannot be copied to evaluate in: give eval_env= beside log_dir")
        return lambda: self._lanes(env)

    def _evaluation_env(self, given: AnyEnv | None) -> AnyEnv | None:
        """Where to play beside learning: what was given, or another copy of the environment. None for a table."""
        if given is not None:
            given = _described.made(given)
            self._check_spaces(given)
            return given
        if self._core.problem is not None:
            return None
        env = None if self._env is None else _described.another(self._env)
        if env is None:
            raise ValueError("the environment cannot be copied to evaluate in: give EvalCallback(env)")
        return env

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
        if np.ndim(risk_level if risk_level is not None else 0.0) > 0:
            raise TypeError(f"risk_level is the one level to act for, and measure_at takes several, got {_arguments.shown(risk_level)}")
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
        episodes: float = 1000,
        risk_level: float | None = None,
        beta: float | None = None,
        measure_at: float | Sequence[float] | None = None,
        seed: int = 0,
        confidence: float = 0.95,
    ) -> Evaluation:
        """What the policy is worth: exactly on a `bqrl/…` environment, elsewhere by playing.

        The policy acts for one level and is measured at any: all levels of `measure_at` come from the same episodes. A vector
        environment plays its copies side by side. Quantiles are of the return that the model learned to maximise, discounted by
        its gamma; the plain sums of rewards are there too, and the same where gamma is 1.

        Args:
            env: where to play; by default the environment that it learns in.
            episodes: a whole number ≥ 1, when it has to be played.
            risk_level: τ in (0, 1), the level to act for; by default the (first) level that the model was made for.
            beta: β in (0, τ]; as in `predict`.
            measure_at: levels in (0, 1) to measure at, whatever the policy acts for; by default the level that it acts for.
            seed: of the episodes that are played.
            confidence: in (0, 1), of the intervals around quantiles.
        """
        level = self._level(risk_level, beta)
        at = [level[0]] if measure_at is None else _floats("measure_at", measure_at)
        core = self._core
        given = self._env if env is None else _described.made(env)
        own = core.problem if given is None else _described.table_of(given)
        if own is not None and own.horizon == core.horizon and own.discount == core.gamma:
            if env is not None:
                self._check_spaces(given)
            law = core.evaluate(own, level, beta is not None)
            if law is not None:
                return exactly(law, level, at, core.gamma)
        _, level, played = self._played(given, risk_level, beta, episodes, seed)
        return from_episodes(played, level, at, confidence)

    def _check_spaces(self, env: AnyEnv) -> None:
        """Refuses an environment that the policy cannot act in."""
        self._core.check_spaces(_described.describe(env, self._core.horizon, None, None, None))
        self._check_actions(env)

    def _played(
        self, env: AnyEnv | None, risk_level: float | None, beta: float | None, episodes: float, seed: int
    ) -> tuple[str, tuple[float, float], tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]]:
        """Plays: the name of the environment, the level, and (returns, sums of rewards, lengths) of episodes."""
        episodes, seed = _arguments.whole("episodes", episodes, 1), _arguments.whole("seed", seed, 0, 2**63 - 1)
        if env is None:
            raise ValueError("the model has no environment: evaluate(env)")
        env = _described.made(env)
        self._check_spaces(env)
        level = self._level(risk_level, beta)
        played = self._core.play(self._lanes(env), level, beta is not None, episodes, seed)
        return _described.name_of(env), level, played

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
        model = _from_core(cls, _opened(path, seed), _arguments.shown(path))
        if env is not None:
            model.set_env(env)
        return model

    def __reduce__(self) -> tuple[Callable[[bytes], Model], tuple[bytes]]:
        """A copy holds the bytes of a saved model; only the loader reads them. The environment is left behind."""
        return _restored, (self._core.to_bytes(),)

    def __copy__(self: M) -> M:
        """As a deep copy: two models never share what they learn."""
        return copy.deepcopy(self)

    def __deepcopy__(self: M, memo: dict[int, Any]) -> M:
        """A model that learns on by itself, in an environment of its own where that can be copied."""
        copied = _from_core(type(self), _bqrl.Learner.from_bytes(self._core.to_bytes()), "the copy")
        try:
            copied._env = copy.deepcopy(self._env, memo)
        except Exception:  # noqa: BLE001 – environments may hold what cannot be copied; then it has none, as a loaded model.
            copied._env = None
        return copied

    def __repr__(self) -> str:
        core = self._core
        levels = ", ".join(f"{tau:g}" for tau in self.risk_levels)
        return f"{type(self).__name__}(risk_level={levels}, timesteps={core.timesteps}, episodes={core.episodes})"


def load(path: str | bytes | os.PathLike[str], env: AnyEnv | None = None, *, seed: int | None = None) -> Model:
    """A saved model of any kind, or one seed of a run directory (by default the first)."""
    return Model.load(path, env, seed=seed)


def _restored(data: bytes) -> Model:
    """The model of a pickle: what `__reduce__` names."""
    return _from_core(Model, _bqrl.Learner.from_bytes(data), "the pickle")


def _from_core(cls: type[M], core: _bqrl.Learner, origin: str) -> M:
    """The model of a learner that came from a file or from bytes."""
    kinds = {kind.algo: kind for kind in _subclasses(Model)}
    # A subclass of the user's own shares the algorithm of ours.
    kind = cls if getattr(cls, "algo", None) == core.algo else kinds.get(core.algo)
    if kind is None or not issubclass(kind, cls):
        raise ValueError(f"{origin} holds a {core.algo} model, not a {cls.__name__}")
    model: M = kind.__new__(kind)
    try:
        model._start(core, None)
    except ValueError as error:
        raise ValueError(f"{origin}: {error}") from None
    return model


def _opened(path: str, seed: int | None) -> _bqrl.Learner:
    if os.path.exists(os.path.join(path, ".bqrl-run")):
        chosen = None if seed is None else _arguments.whole("seed", seed, 0, 2**63 - 1)
        return _bqrl.Learner.load_run(os.path.abspath(path), chosen)
    if seed is not None:
        raise ValueError(f"{_arguments.shown(path)} is a model, which has no seeds to choose from")
    return _bqrl.Learner.load(path)


def _subclasses(kind: type[Model]) -> list[type[Model]]:
    found = [one for sub in kind.__subclasses__() for one in [sub, *_subclasses(sub)]]
    return [one for one in found if "algo" in vars(one)]


def _floats(name: str, value: float | Sequence[float]) -> list[float]:
    try:
        return np.atleast_1d(np.asarray(value, np.float64)).tolist()  # type: ignore[no-any-return]
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number or a list of numbers, got {_arguments.shown(value)}") from None


def _warn_of_memory(capacity: int, n_lanes: int, observations: dict[str, Any]) -> None:
    """Warns when a full replay takes more than half of the memory; one that cannot fit is refused before."""
    size, available = _bqrl.replay_memory(capacity, n_lanes, observations)
    if available is not None and size > available / 2:
        warnings.warn(
            f"a full replay of {capacity} transitions takes {size / 1e9:.1f} GB of the {available / 1e9:.1f} GB of this machine: "
            "lower replay_capacity",
            ResourceWarning,
            stacklevel=5,
        )


def _is_wrapped(space: Any) -> bool:
    return isinstance(space, gymnasium.spaces.Dict) and set(space.spaces) == {"observation", "reward"}
