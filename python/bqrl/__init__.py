"""Act well at a chosen percentile of outcomes, not on average.

Learn on any Gymnasium environment with discrete actions:

    model = bqrl.TargetTracking("CartPole-v1", seed=0)
    model.learn(total_timesteps=50_000, progress_bar=True)
    action, state = model.predict(observation, risk_level=0.1)

Plan exactly where every probability is known:

    bqrl.plan("asset-selling", risk_level=0.1)[0.1].best_quantile

Plan with what you have: a log of episodes, a simulator, a rule that is used today:

    fit = bqrl.fit(frame)
    bqrl.plan(fit, confidence=0.95)[0.1].promise.certified_quantile
    bqrl.compare(fit, lambda stage, state, collected: "order" if state == "low" else "wait")

The risk level is τ of the paper, `tau` on the command line and in run files.
"""

from __future__ import annotations

from typing import Any, Literal

from . import _bqrl, envs
from ._bqrl import Problem, __version__
from ._evaluate import ComparedPolicy, Comparison, PolicyEvaluation, compare, evaluate
from ._fit import Fit, fit, simulate
from ._measure import ComparedModel, MeasuredLevel, ModelComparison
from ._model import ObservationMoments
from ._plan import Certificate, Plan, PlannedLevel, Promise, plan
from ._policy import ActionWorth, Explanation, PlannedPolicy
from ._serve import Server, serve
from ._show import Picture
from .agents import PPO, QPPO, QRDQN, TRPO, UCBBQRL, DeepBQRL, Evaluation, Model, TargetTracking, VaRQ, load
from .callbacks import Callback, CheckpointCallback, Episode, EvalCallback, Evaluated
from .envs import GameEnv, ObserveReward, TabularEnv

__all__ = [
    "ActionWorth",
    "Callback",
    "Certificate",
    "CheckpointCallback",
    "ComparedModel",
    "ComparedPolicy",
    "Comparison",
    "DeepBQRL",
    "Episode",
    "EvalCallback",
    "Evaluated",
    "Evaluation",
    "Explanation",
    "Fit",
    "GameEnv",
    "MeasuredLevel",
    "Model",
    "ModelComparison",
    "ObservationMoments",
    "ObserveReward",
    "PPO",
    "Picture",
    "Plan",
    "PlannedLevel",
    "PlannedPolicy",
    "PolicyEvaluation",
    "Problem",
    "Promise",
    "QPPO",
    "QRDQN",
    "Server",
    "TRPO",
    "TabularEnv",
    "TargetTracking",
    "UCBBQRL",
    "VaRQ",
    "__version__",
    "compare",
    "evaluate",
    "fit",
    "load",
    "plan",
    "problems",
    "serve",
    "settings",
    "simulate",
]

envs.register()


def settings(algo: str, observations: Literal["table", "vector", "planes", "frames"] = "table") -> dict[str, Any]:
    """The settings of an algorithm, such as "deep-bqrl", with their defaults: the preset that the command line uses too.

    Args:
        algo: the name of the algorithm on the command line.
        observations: "table" for `Discrete` ones, "planes" for images of bits or bytes, "frames" for those of at least 32 × 32
            cells, "vector" for all others. Agents find out by themselves.
    """
    return _bqrl.preset(algo, observations)["agent"]


def problems() -> dict[str, dict[str, str]]:
    """The built-in problems, each with its parameters: default, range and meaning in words."""
    return {
        name: {key: f"{meaning}; {allowed}; {default}" for key, default, allowed, meaning in parameters}
        for name, _, parameters in _bqrl.problems()
    }
