"""The agents, one class per algorithm.

Written by `python/scripts/write_agents.py` from the presets. Change the script, not this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ._measure import Evaluation
from ._model import AnyEnv, Model, load, named

__all__ = ["DeepBQRL", "Evaluation", "Model", "PPO", "QPPO", "QRDQN", "TRPO", "TargetTracking", "UCBBQRL", "VaRQ", "load"]


class DeepBQRL(Model):
    """Deep-BQRL, the paper's Algorithm 1: an ensemble of quantile critics, trained for one level.

    Nothing needs to be scaled: vectors are normalised by their running mean and standard deviation, and returns by their
    own scale, which is found while learning. The first update comes after 8 steps and one finished episode.

    "Vectors" are all observations other than `Discrete`. Of these, "planes" are images of bits or bytes, and "frames" are
    images of at least 32 × 32 cells; what is not said for them is as for the kind before.

    Args:
        env: a Gymnasium environment or vector environment, or a vector environment of Stable-Baselines3 or EnvPool,
            with `Discrete` actions; or the id of one for `gymnasium.make`. Observations may be `Discrete`, `Box`,
            `MultiDiscrete`, `MultiBinary`, or a flat `Dict` or `Tuple` of these.
        risk_level: τ in (0, 1), the percentile of the return to act well at. Default 0.1.
        beta: β in (0, risk_level], the width of the buffer below the level; by default as wide as the level.
        seed: ≥ 0; everything random follows from it, the seeds of episodes included. Default 0.
        gamma: γ in (0, 1]: a reward of stage h counts γ^h. By default 1, or the environment's own where it is a
            `bqrl/…` one.
        horizon: ≥ 1, the longest an episode may be; by default the environment's time limit. Without one it is
            required.
        horizon_is_task: True ends the return at the horizon: nothing is earned after it, so nothing is bootstrapped
            there. False treats the horizon as a cut-off: the agent learns as if the episode went on. Default True.
        reward_bounds: (low, high) of one step's reward, where known.
        normalize_observations: whether vectors are normalised by their running mean and standard deviation
            (`observation_moments`) and cut at ±5; False passes the numbers on as they are, and is refused for other
            observations. Default True.
        n_quantiles: from 1 to 1024, K, the quantiles of a critic. Default 4, for vectors 32.
        convolutions: channels, kernel and stride of the convolutions in front of the hidden layers, at most 8 of
            them, where observations are images. Default [], for planes [[16, 3, 1]], for frames [[32, 5, 5], [64,
            5, 5]].
        hidden: widths of the hidden layers, at most 16 of them. Default [64], for vectors [128, 128], for planes
            [128], for frames [256].
        kappa: > 0, κ of the Huber loss, in units of the returns. Default 0.2.
        zeta: in (0, 1], ζ, the rate of the soft update; larger during the first updates. Default 0.01, for vectors
            0.005.
        learning_rate: > 0, the step size of Adam. Default 0.002, for vectors 0.001.
        batch_size: from 1 to 65536, transitions in a minibatch. Default 24, for vectors 64.
        replay_capacity: the transitions that are remembered; at least `batch_size`. Default 1000000, for frames
            100000.
        updates_per_step: in [0, 1000], minibatches per step of the environment; 0.25 is one in four steps. Default
            1.0, for planes 0.25.
        optimism: the first value of every action, in units of the returns. Default 3.0, for vectors 1.0, for planes
            0.0.
        optimistic_tries: tries of an action in a `Discrete` state, or one like it, before it loses this value; 0
            for none. Default 0.
        reward_scale: ≥ 0, the return that counts as 1 for the networks; 0 finds it while learning. Default 0.0.
        kernels: the instructions to compute with: "auto", "avx512", "avx2", "neon" or "scalar". Default "auto".
        n_critics: from 2 to 256, M, the networks of the ensemble. Default 4.
        score: the statistic to maximise: "buffered" (the paper's), "point" (one quantile) or "mean". Default
            "buffered".
        tie_break: ≥ 0, the weight of the mean in the score. Default 0.1.
        lambda_0: ≥ 0, the first weight of the exploration bonus. Default 5.0, for vectors 1.0.
        lambda_decay: the time after which half of that weight is left, such as "500 episodes" or "20000 steps"; a
            number counts episodes. Default "500 episodes", for vectors "5000 steps".
    """

    algo = "deep-bqrl"

    @named
    def __init__(
        self,
        env: AnyEnv,
        *,
        risk_level: float = 0.1,
        beta: float | None = None,
        seed: int = 0,
        gamma: float | None = None,
        horizon: int | None = None,
        horizon_is_task: bool = True,
        reward_bounds: tuple[float, float] | None = None,
        normalize_observations: bool = True,
        n_quantiles: int | None = None,
        convolutions: Sequence[Sequence[int]] | None = None,
        hidden: Sequence[int] | None = None,
        kappa: float = 0.2,
        zeta: float | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        replay_capacity: int | None = None,
        updates_per_step: float | None = None,
        optimism: float | None = None,
        optimistic_tries: int = 0,
        reward_scale: float = 0.0,
        kernels: Literal["auto", "avx512", "avx2", "neon", "scalar"] = "auto",
        n_critics: int = 4,
        score: Literal["buffered", "point", "mean"] = "buffered",
        tie_break: float = 0.1,
        lambda_0: float | None = None,
        lambda_decay: float | str | None = None,
    ) -> None:
        settings = {
            "n_quantiles": n_quantiles,
            "convolutions": convolutions,
            "hidden": hidden,
            "kappa": kappa,
            "zeta": zeta,
            "learning_rate": learning_rate,
            "batch_size": batch_size,
            "replay_capacity": replay_capacity,
            "updates_per_step": updates_per_step,
            "optimism": optimism,
            "optimistic_tries": optimistic_tries,
            "reward_scale": reward_scale,
            "kernels": kernels,
            "n_critics": n_critics,
            "score": score,
            "tie_break": tie_break,
            "lambda_0": lambda_0,
            "lambda_decay": lambda_decay,
        }
        self._make(env, risk_level, beta, seed, gamma, horizon, horizon_is_task, reward_bounds, settings, normalize_observations)


class QRDQN(Model):
    """QR-DQN, risk-neutral: quantile regression for the mean. It serves every level with the same policy.

    Network, replay, update and exploration are those of `TargetTracking`, so that the two can be compared. Nothing needs
    to be scaled: vectors are normalised by their running mean and standard deviation, and returns by their own scale, which
    is found while learning. The first update comes after 8 steps and one finished episode. The policy does not depend on
    the collected reward, so `predict` needs no rewards.

    "Vectors" are all observations other than `Discrete`. Of these, "planes" are images of bits or bytes, and "frames" are
    images of at least 32 × 32 cells; what is not said for them is as for the kind before.

    Args:
        env: a Gymnasium environment or vector environment, or a vector environment of Stable-Baselines3 or EnvPool,
            with `Discrete` actions; or the id of one for `gymnasium.make`. Observations may be `Discrete`, `Box`,
            `MultiDiscrete`, `MultiBinary`, or a flat `Dict` or `Tuple` of these.
        risk_level: τ in (0, 1), the percentile of the return to act well at. One or several; `predict` and
            `evaluate` take any. Default (0.1, 0.5, 0.9).
        beta: β in (0, risk_level], the width of the buffer below the level; by default as wide as the level.
        seed: ≥ 0; everything random follows from it, the seeds of episodes included. Default 0.
        gamma: γ in (0, 1]: a reward of stage h counts γ^h. By default 1, or the environment's own where it is a
            `bqrl/…` one.
        horizon: ≥ 1, the longest an episode may be; by default the environment's time limit. Without one it is
            required.
        horizon_is_task: True ends the return at the horizon: nothing is earned after it, so nothing is bootstrapped
            there. False treats the horizon as a cut-off: the agent learns as if the episode went on. Default True.
        reward_bounds: (low, high) of one step's reward, where known.
        normalize_observations: whether vectors are normalised by their running mean and standard deviation
            (`observation_moments`) and cut at ±5; False passes the numbers on as they are, and is refused for other
            observations. Default True.
        n_quantiles: from 1 to 1024, K, the quantiles of a critic. Default 32.
        convolutions: channels, kernel and stride of the convolutions in front of the hidden layers, at most 8 of
            them, where observations are images. Default [], for planes [[16, 3, 1]], for frames [[32, 5, 5], [64,
            5, 5]].
        hidden: widths of the hidden layers, at most 16 of them. Default [64], for vectors [128, 128], for planes
            [128], for frames [256].
        kappa: > 0, κ of the quantile loss, in units of the returns. Default 0.01, for vectors 0.02.
        zeta: in (0, 1], ζ, the rate of the soft update; larger during the first updates. Default 0.005, for vectors
            0.002, for planes 0.005.
        learning_rate: > 0, the step size of Adam. Default 0.003, for vectors 0.001.
        batch_size: from 1 to 65536, transitions in a minibatch. Default 32, for vectors 64, for planes 32.
        replay_capacity: the transitions that are remembered; at least `batch_size`. Default 1000000, for frames
            100000.
        updates_per_step: in [0, 1000], minibatches per step of the environment; 0.25 is one in four steps.
            `Discrete` observations get more during the first 40,000 steps. Default 1.0.
        optimism: the first value of every action, in units of the returns. Default 3.0, for vectors 0.0.
        optimistic_tries: tries of an action in a `Discrete` state, or one like it, before it loses this value; 0
            for none. Default 1.
        reward_scale: ≥ 0, the return that counts as 1 for the networks; 0 finds it while learning. Default 0.0.
        kernels: the instructions to compute with: "auto", "avx512", "avx2", "neon" or "scalar". Default "auto".
        n_critics: from 1 to 16, critics with common hidden layers; the least of them values the next action.
            Default 1, for vectors 2, for planes 1.
        epsilon: in [0, 1], the share of random actions; if it is positive, it falls to this from 1 over the first
            5000 steps. Default 0.0, for vectors 0.1.
        critic_discount: in (0, 1], what a step ahead counts for the critic alone. Returns are measured with
            `gamma`. Default 1.0, for vectors 0.995, for planes 0.99.
    """

    algo = "qr-dqn"
    _looks_at_rewards = False

    @named
    def __init__(
        self,
        env: AnyEnv,
        *,
        risk_level: float | Sequence[float] = (0.1, 0.5, 0.9),
        beta: float | Sequence[float] | None = None,
        seed: int = 0,
        gamma: float | None = None,
        horizon: int | None = None,
        horizon_is_task: bool = True,
        reward_bounds: tuple[float, float] | None = None,
        normalize_observations: bool = True,
        n_quantiles: int = 32,
        convolutions: Sequence[Sequence[int]] | None = None,
        hidden: Sequence[int] | None = None,
        kappa: float | None = None,
        zeta: float | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        replay_capacity: int | None = None,
        updates_per_step: float = 1.0,
        optimism: float | None = None,
        optimistic_tries: int = 1,
        reward_scale: float = 0.0,
        kernels: Literal["auto", "avx512", "avx2", "neon", "scalar"] = "auto",
        n_critics: int | None = None,
        epsilon: float | None = None,
        critic_discount: float | None = None,
    ) -> None:
        settings = {
            "n_quantiles": n_quantiles,
            "convolutions": convolutions,
            "hidden": hidden,
            "kappa": kappa,
            "zeta": zeta,
            "learning_rate": learning_rate,
            "batch_size": batch_size,
            "replay_capacity": replay_capacity,
            "updates_per_step": updates_per_step,
            "optimism": optimism,
            "optimistic_tries": optimistic_tries,
            "reward_scale": reward_scale,
            "kernels": kernels,
            "n_critics": n_critics,
            "epsilon": epsilon,
            "critic_discount": critic_discount,
        }
        self._make(env, risk_level, beta, seed, gamma, horizon, horizon_is_task, reward_bounds, settings, normalize_observations)


class TargetTracking(Model):
    """Target tracking: one run serves every risk level.

    It learns the best probability of reaching any return, for all returns at once. The risk level is chosen when it acts:
    at the start of an episode, `predict(…, risk_level=0.1)` takes the largest return that it expects to reach 9 times in
    10. It then holds this return as its target for the whole episode. Where the target leaves a choice, the mean decides.

    Nothing needs to be scaled: vectors are normalised by their running mean and standard deviation, and returns by their
    own scale, which is found while learning. The first update comes after 8 steps and one finished episode.

    "Vectors" are all observations other than `Discrete`. Of these, "planes" are images of bits or bytes, and "frames" are
    images of at least 32 × 32 cells; what is not said for them is as for the kind before.

    Args:
        env: a Gymnasium environment or vector environment, or a vector environment of Stable-Baselines3 or EnvPool,
            with `Discrete` actions; or the id of one for `gymnasium.make`. Observations may be `Discrete`, `Box`,
            `MultiDiscrete`, `MultiBinary`, or a flat `Dict` or `Tuple` of these.
        risk_level: τ in (0, 1), the percentile of the return to act well at. One or several; `predict` and
            `evaluate` take any. Default (0.1, 0.5, 0.9).
        beta: β in (0, risk_level], the width of the buffer below the level; by default as wide as the level.
        seed: ≥ 0; everything random follows from it, the seeds of episodes included. Default 0.
        gamma: γ in (0, 1]: a reward of stage h counts γ^h. By default 1, or the environment's own where it is a
            `bqrl/…` one.
        horizon: ≥ 1, the longest an episode may be; by default the environment's time limit. Without one it is
            required.
        horizon_is_task: True ends the return at the horizon: nothing is earned after it, so nothing is bootstrapped
            there. False treats the horizon as a cut-off: the agent learns as if the episode went on. Default True.
        reward_bounds: (low, high) of one step's reward, where known.
        normalize_observations: whether vectors are normalised by their running mean and standard deviation
            (`observation_moments`) and cut at ±5; False passes the numbers on as they are, and is refused for other
            observations. Default True.
        n_quantiles: from 1 to 1024, K, the quantiles of a critic. Default 64.
        convolutions: channels, kernel and stride of the convolutions in front of the hidden layers, at most 8 of
            them, where observations are images. Default [], for planes [[16, 3, 1]], for frames [[32, 5, 5], [64,
            5, 5]].
        hidden: widths of the hidden layers, at most 16 of them. Default [64], for vectors [128, 128], for planes
            [128], for frames [256].
        kappa: > 0, κ of the quantile loss, in units of the returns. Default 0.01, for vectors 0.02.
        zeta: in (0, 1], ζ, the rate of the soft update; larger during the first updates. Default 0.005, for vectors
            0.002, for planes 0.005.
        learning_rate: > 0, the step size of Adam. Default 0.003, for vectors 0.001.
        batch_size: from 1 to 65536, transitions in a minibatch. Default 32, for vectors 64, for planes 32.
        replay_capacity: the transitions that are remembered; at least `batch_size`. Default 1000000, for frames
            100000.
        updates_per_step: in [0, 1000], minibatches per step of the environment; 0.25 is one in four steps.
            `Discrete` observations get more during the first 40,000 steps. Default 1.0, for planes 0.25.
        optimism: the first value of every action, in units of the returns. Default 3.0, for vectors 0.0.
        optimistic_tries: tries of an action in a `Discrete` state, or one like it, before it loses this value; 0
            for none. Default 2.
        reward_scale: ≥ 0, the return that counts as 1 for the networks; 0 finds it while learning. Default 0.0.
        kernels: the instructions to compute with: "auto", "avx512", "avx2", "neon" or "scalar". Default "auto".
        n_critics: from 1 to 16, critics with common hidden layers; the least of them values the next action.
            Default 1, for vectors 2, for planes 1.
        ramps: at most 8 widths in (0, 10] for the buffered quantile (`beta=` in `predict`), as shares of the range
            of returns. 1 is CVaR; with [] the point quantile's target is used instead. Default [0.3, 1.0], for
            vectors [].
        epsilon: in [0, 1], the share of random actions in the episodes that explore; if it is positive, it falls to
            this from 1 over the first 5000 steps. Default 0.0, for vectors 0.1.
    """

    algo = "target-tracking"
    _has_a_policy_per_level = True

    @named
    def __init__(
        self,
        env: AnyEnv,
        *,
        risk_level: float | Sequence[float] = (0.1, 0.5, 0.9),
        beta: float | Sequence[float] | None = None,
        seed: int = 0,
        gamma: float | None = None,
        horizon: int | None = None,
        horizon_is_task: bool = True,
        reward_bounds: tuple[float, float] | None = None,
        normalize_observations: bool = True,
        n_quantiles: int = 64,
        convolutions: Sequence[Sequence[int]] | None = None,
        hidden: Sequence[int] | None = None,
        kappa: float | None = None,
        zeta: float | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        replay_capacity: int | None = None,
        updates_per_step: float | None = None,
        optimism: float | None = None,
        optimistic_tries: int = 2,
        reward_scale: float = 0.0,
        kernels: Literal["auto", "avx512", "avx2", "neon", "scalar"] = "auto",
        n_critics: int | None = None,
        ramps: Sequence[float] | None = None,
        epsilon: float | None = None,
    ) -> None:
        settings = {
            "n_quantiles": n_quantiles,
            "convolutions": convolutions,
            "hidden": hidden,
            "kappa": kappa,
            "zeta": zeta,
            "learning_rate": learning_rate,
            "batch_size": batch_size,
            "replay_capacity": replay_capacity,
            "updates_per_step": updates_per_step,
            "optimism": optimism,
            "optimistic_tries": optimistic_tries,
            "reward_scale": reward_scale,
            "kernels": kernels,
            "n_critics": n_critics,
            "ramps": ramps,
            "epsilon": epsilon,
        }
        self._make(env, risk_level, beta, seed, gamma, horizon, horizon_is_task, reward_bounds, settings, normalize_observations)


class UCBBQRL(Model):
    """UCB-BQRL: optimistic planning on counts, for one level. It needs `Discrete` observations.

    A reconstruction of the paper's model-based reference. It counts transitions and plans again when a count has doubled.
    Planning time grows with states × actions × horizon × returns, so it is for small tables.

    Args:
        env: a Gymnasium environment or vector environment, or a vector environment of Stable-Baselines3 or EnvPool,
            with `Discrete` actions; or the id of one for `gymnasium.make`. Observations are `Discrete`.
        risk_level: τ in (0, 1), the percentile of the return to act well at. Default 0.1.
        beta: β in (0, risk_level], the width of the buffer below the level; by default as wide as the level.
        seed: ≥ 0; everything random follows from it, the seeds of episodes included. Default 0.
        gamma: γ in (0, 1]: a reward of stage h counts γ^h. By default 1, or the environment's own where it is a
            `bqrl/…` one.
        horizon: ≥ 1, the longest an episode may be; by default the environment's time limit. Without one it is
            required.
        horizon_is_task: True ends the return at the horizon: nothing is earned after it, so nothing is bootstrapped
            there. False treats the horizon as a cut-off: the agent learns as if the episode went on. Default True.
        reward_bounds: (low, high) of one step's reward, where known. Required outside `bqrl/…` environments.
        radius_scale: ≥ 0, the factor on the confidence radius; 0 trusts the counts. Default 0.03.
        delta: in (0, 1), δ in the confidence radius. Default 0.1.
        stationary: one table of counts for all stages, where the problem is known to be the same at all of them.
            Default True.
        objective: what is planned for: "point" (the quantile) or "buffered". Default "point".
        output: the policy that it outputs: the best on the estimate, or the one it explores with. Default
            "nominal".
        prior: the belief about the next states of an action before it is tried. Default "adaptive".
        prior_strength: ≥ 0, the number of observations that the prior counts as. Default 1.0.
        slack: in [0, 1], the share of a quantile's slack that exploration uses to raise the mean. Default 1.0.
        replan_every: episodes after which it plans again even if no count has doubled; 0 waits for a count. Default
            0.
        max_returns: from 2 to 4194304, the most return values of a plan; with more, rewards are rounded down.
            Default 16384.
    """

    algo = "ucb-bqrl"

    @named
    def __init__(
        self,
        env: AnyEnv,
        *,
        risk_level: float = 0.1,
        beta: float | None = None,
        seed: int = 0,
        gamma: float | None = None,
        horizon: int | None = None,
        horizon_is_task: bool = True,
        reward_bounds: tuple[float, float] | None = None,
        radius_scale: float = 0.03,
        delta: float = 0.1,
        stationary: bool = True,
        objective: Literal["point", "buffered"] = "point",
        output: Literal["nominal", "optimistic"] = "nominal",
        prior: Literal["uniform", "pooled", "shifted", "adaptive"] = "adaptive",
        prior_strength: float = 1.0,
        slack: float = 1.0,
        replan_every: int = 0,
        max_returns: int = 16384,
    ) -> None:
        settings = {
            "radius_scale": radius_scale,
            "delta": delta,
            "stationary": stationary,
            "objective": objective,
            "output": output,
            "prior": prior,
            "prior_strength": prior_strength,
            "slack": slack,
            "replan_every": replan_every,
            "max_returns": max_returns,
        }
        self._make(env, risk_level, beta, seed, gamma, horizon, horizon_is_task, reward_bounds, settings)


class PPO(Model):
    """PPO with tables, risk-neutral: a clipped policy gradient. It needs `Discrete` observations.

    It serves every level with the same policy, which is stochastic: `predict(…, deterministic=False)` draws from it.

    Args:
        env: a Gymnasium environment or vector environment, or a vector environment of Stable-Baselines3 or EnvPool,
            with `Discrete` actions; or the id of one for `gymnasium.make`. Observations are `Discrete`.
        risk_level: τ in (0, 1), the percentile of the return to act well at. One or several; `predict` and
            `evaluate` take any. Default 0.1.
        beta: β in (0, risk_level], the width of the buffer below the level; by default as wide as the level.
        seed: ≥ 0; everything random follows from it, the seeds of episodes included. Default 0.
        gamma: γ in (0, 1]: a reward of stage h counts γ^h. By default 1, or the environment's own where it is a
            `bqrl/…` one.
        horizon: ≥ 1, the longest an episode may be; by default the environment's time limit. Without one it is
            required.
        horizon_is_task: True ends the return at the horizon: nothing is earned after it, so nothing is bootstrapped
            there. False treats the horizon as a cut-off: the agent learns as if the episode went on. Default True.
        reward_bounds: (low, high) of one step's reward, where known.
        episodes_per_update: from 1 to 1000000, episodes of one policy before it is changed. Default 5.
        gae_lambda: in [0, 1], λ of the advantages. Default 0.5.
        value_rate: in (0, 1], the least step size of the values. Default 0.01.
        value_prior: ≥ 0, visits by which values are shrunk towards those of their group. Default 4.75.
        stage_widths: widths of the groups of stages whose tables add up; [1] is one row per stage and state.
            Default [1, 128].
        epochs: from 1 to 10000, passes over the episodes of an update. Default 10.
        minibatch_size: from 1 to 16777216, decisions per gradient step. Default 64.
        clip: > 0, ε of the clipped ratio. Default 0.2.
        learning_rate: > 0, the first step size of the policy. Default 0.0158.
        learning_rate_decay: the time after which half of that step size is left, such as "500 episodes" or "20000
            steps"; a number counts episodes. Default "1000 episodes".
        entropy_bonus: ≥ 0, the weight of the entropy. Default 0.0.
        target_kl: ≥ 0, the change of the policy after which no further pass is made; 0 for no limit. Default 0.0.
    """

    algo = "ppo"
    _looks_at_rewards = False

    @named
    def __init__(
        self,
        env: AnyEnv,
        *,
        risk_level: float | Sequence[float] = 0.1,
        beta: float | Sequence[float] | None = None,
        seed: int = 0,
        gamma: float | None = None,
        horizon: int | None = None,
        horizon_is_task: bool = True,
        reward_bounds: tuple[float, float] | None = None,
        episodes_per_update: int = 5,
        gae_lambda: float = 0.5,
        value_rate: float = 0.01,
        value_prior: float = 4.75,
        stage_widths: Sequence[int] = (1, 128),
        epochs: int = 10,
        minibatch_size: int = 64,
        clip: float = 0.2,
        learning_rate: float = 0.0158,
        learning_rate_decay: float | str = "1000 episodes",
        entropy_bonus: float = 0.0,
        target_kl: float = 0.0,
    ) -> None:
        settings = {
            "episodes_per_update": episodes_per_update,
            "gae_lambda": gae_lambda,
            "value_rate": value_rate,
            "value_prior": value_prior,
            "stage_widths": stage_widths,
            "epochs": epochs,
            "minibatch_size": minibatch_size,
            "clip": clip,
            "learning_rate": learning_rate,
            "learning_rate_decay": learning_rate_decay,
            "entropy_bonus": entropy_bonus,
            "target_kl": target_kl,
        }
        self._make(env, risk_level, beta, seed, gamma, horizon, horizon_is_task, reward_bounds, settings)


class TRPO(Model):
    """TRPO with tables, risk-neutral: a policy gradient inside a trust region. It needs `Discrete` observations.

    It serves every level with the same policy, which is stochastic: `predict(…, deterministic=False)` draws from it.

    Args:
        env: a Gymnasium environment or vector environment, or a vector environment of Stable-Baselines3 or EnvPool,
            with `Discrete` actions; or the id of one for `gymnasium.make`. Observations are `Discrete`.
        risk_level: τ in (0, 1), the percentile of the return to act well at. One or several; `predict` and
            `evaluate` take any. Default 0.1.
        beta: β in (0, risk_level], the width of the buffer below the level; by default as wide as the level.
        seed: ≥ 0; everything random follows from it, the seeds of episodes included. Default 0.
        gamma: γ in (0, 1]: a reward of stage h counts γ^h. By default 1, or the environment's own where it is a
            `bqrl/…` one.
        horizon: ≥ 1, the longest an episode may be; by default the environment's time limit. Without one it is
            required.
        horizon_is_task: True ends the return at the horizon: nothing is earned after it, so nothing is bootstrapped
            there. False treats the horizon as a cut-off: the agent learns as if the episode went on. Default True.
        reward_bounds: (low, high) of one step's reward, where known.
        episodes_per_update: from 1 to 1000000, episodes of one policy before it is changed. Default 5.
        gae_lambda: in [0, 1], λ of the advantages. Default 0.5.
        value_rate: in (0, 1], the least step size of the values. Default 0.01.
        value_prior: ≥ 0, visits by which values are shrunk towards those of their group. Default 1.0.
        stage_widths: widths of the groups of stages whose tables add up; [1] is one row per stage and state.
            Default [1, 128].
        max_kl: > 0, the first radius of the trust region. Default 0.0136.
        max_kl_decay: the time after which half of that radius is left, such as "500 episodes" or "20000 steps"; a
            number counts episodes. Default "1000 episodes".
        damping: ≥ 0, added to the diagonal of the Fisher matrix. Default 0.1.
        cg_iterations: from 1 to 10000, steps of conjugate gradients at most. Default 20.
        line_search_steps: from 1 to 1000, points that are tried on the line. Default 10.
        backtrack_factor: in (0, 1), how much shorter the next point's step is. Default 0.7.
    """

    algo = "trpo"
    _looks_at_rewards = False

    @named
    def __init__(
        self,
        env: AnyEnv,
        *,
        risk_level: float | Sequence[float] = 0.1,
        beta: float | Sequence[float] | None = None,
        seed: int = 0,
        gamma: float | None = None,
        horizon: int | None = None,
        horizon_is_task: bool = True,
        reward_bounds: tuple[float, float] | None = None,
        episodes_per_update: int = 5,
        gae_lambda: float = 0.5,
        value_rate: float = 0.01,
        value_prior: float = 1.0,
        stage_widths: Sequence[int] = (1, 128),
        max_kl: float = 0.0136,
        max_kl_decay: float | str = "1000 episodes",
        damping: float = 0.1,
        cg_iterations: int = 20,
        line_search_steps: int = 10,
        backtrack_factor: float = 0.7,
    ) -> None:
        settings = {
            "episodes_per_update": episodes_per_update,
            "gae_lambda": gae_lambda,
            "value_rate": value_rate,
            "value_prior": value_prior,
            "stage_widths": stage_widths,
            "max_kl": max_kl,
            "max_kl_decay": max_kl_decay,
            "damping": damping,
            "cg_iterations": cg_iterations,
            "line_search_steps": line_search_steps,
            "backtrack_factor": backtrack_factor,
        }
        self._make(env, risk_level, beta, seed, gamma, horizon, horizon_is_task, reward_bounds, settings)


class VaRQ(Model):
    """VaR-Q-learning (Hau et al., AISTATS 2025) with tables, for one level. It needs `Discrete` observations.

    Args:
        env: a Gymnasium environment or vector environment, or a vector environment of Stable-Baselines3 or EnvPool,
            with `Discrete` actions; or the id of one for `gymnasium.make`. Observations are `Discrete`.
        risk_level: τ in (0, 1), the percentile of the return to act well at. Default 0.1.
        beta: β in (0, risk_level], the width of the buffer below the level; by default as wide as the level.
        seed: ≥ 0; everything random follows from it, the seeds of episodes included. Default 0.
        gamma: γ in (0, 1]: a reward of stage h counts γ^h. By default 1, or the environment's own where it is a
            `bqrl/…` one.
        horizon: ≥ 1, the longest an episode may be; by default the environment's time limit. Without one it is
            required.
        horizon_is_task: True ends the return at the horizon: nothing is earned after it, so nothing is bootstrapped
            there. False treats the horizon as a cut-off: the agent learns as if the episode went on. Default True.
        reward_bounds: (low, high) of one step's reward, where known.
        n_levels: from 1 to 10000, J, the levels that the tables have. Default 30.
        kappa: in [1e-6, 1], κ of the soft quantile loss, in units of `reward_scale`. Default 0.01.
        initial_value: the first value of every quantile, in units of `reward_scale`. Default 0.6.
        step_0: > 0, the first step size, in units of `reward_scale`. Default 0.398.
        step_decay: > 0, updates of an entry after which its step has halved. Default 20.0.
        epsilon_0: in [0, 1], the first share of random actions. Default 0.1.
        epsilon_decay: the time after which half of that share is left, such as "500 episodes" or "20000 steps"; a
            number counts episodes. Default "500 episodes".
        replay_episodes: from 0 to 10000, earlier episodes that are learned from again after each episode. Default
            1.
        share_stages: whether a transition teaches every stage, where the problem is known to be the same at all of
            them. Default True.
        tie_tolerance: ≥ 0, values this close count as equal, in units of `reward_scale`. Default 0.02.
        reward_scale: ≥ 0, the reward that counts as 1; 0 takes the largest |reward| that the problem names. Default
            0.0.
    """

    algo = "var-q"

    @named
    def __init__(
        self,
        env: AnyEnv,
        *,
        risk_level: float = 0.1,
        beta: float | None = None,
        seed: int = 0,
        gamma: float | None = None,
        horizon: int | None = None,
        horizon_is_task: bool = True,
        reward_bounds: tuple[float, float] | None = None,
        n_levels: int = 30,
        kappa: float = 0.01,
        initial_value: float = 0.6,
        step_0: float = 0.398,
        step_decay: float = 20.0,
        epsilon_0: float = 0.1,
        epsilon_decay: float | str = "500 episodes",
        replay_episodes: int = 1,
        share_stages: bool = True,
        tie_tolerance: float = 0.02,
        reward_scale: float = 0.0,
    ) -> None:
        settings = {
            "n_levels": n_levels,
            "kappa": kappa,
            "initial_value": initial_value,
            "step_0": step_0,
            "step_decay": step_decay,
            "epsilon_0": epsilon_0,
            "epsilon_decay": epsilon_decay,
            "replay_episodes": replay_episodes,
            "share_stages": share_stages,
            "tie_tolerance": tie_tolerance,
            "reward_scale": reward_scale,
        }
        self._make(env, risk_level, beta, seed, gamma, horizon, horizon_is_task, reward_bounds, settings)


class QPPO(Model):
    """QPPO (Jiang, Hu and Peng, arXiv 2305.07248): a quantile policy gradient with tables, for one level.

    It needs `Discrete` observations. Its policy is stochastic: `predict(…, deterministic=False)` draws from it.

    Args:
        env: a Gymnasium environment or vector environment, or a vector environment of Stable-Baselines3 or EnvPool,
            with `Discrete` actions; or the id of one for `gymnasium.make`. Observations are `Discrete`.
        risk_level: τ in (0, 1), the percentile of the return to act well at. Default 0.1.
        beta: β in (0, risk_level], the width of the buffer below the level; by default as wide as the level.
        seed: ≥ 0; everything random follows from it, the seeds of episodes included. Default 0.
        gamma: γ in (0, 1]: a reward of stage h counts γ^h. By default 1, or the environment's own where it is a
            `bqrl/…` one.
        horizon: ≥ 1, the longest an episode may be; by default the environment's time limit. Without one it is
            required.
        horizon_is_task: True ends the return at the horizon: nothing is earned after it, so nothing is bootstrapped
            there. False treats the horizon as a cut-off: the agent learns as if the episode went on. Default True.
        reward_bounds: (low, high) of one step's reward, where known.
        stage_bins: parts of the horizon that have rows of their own; 1 is the paper's, 0 stands for every stage.
            Default 1.
        collected_bins: from 1 to 1000000, parts of the range of the collected reward that have rows of their own.
            Default 1.
        batch_episodes: from 1 to 1000000, episodes in a batch. Default 10.
        epochs: from 1 to 10000, steps of the policy per batch. Default 4.
        clip: > 0, ε of the clipped ratio. Default 0.2.
        learning_rate: > 0, the first step size of the policy. Default 0.398.
        learning_rate_decay: the time after which half of that step size is left, such as "500 episodes" or "20000
            steps"; a number counts episodes. Default "1000 episodes".
        quantile_step: > 0, the first step size of the quantile, in units of `reward_scale`. Default 0.1.
        quantile_decay: the time after which half of that step size is left, such as "500 episodes" or "20000
            steps"; a number counts episodes. Default "200 episodes".
        slack: ≥ 0, how far above the quantile a return still counts as bad, in units of `reward_scale`. Default
            0.05.
        gae_lambda: in [0, 1], λ of the advantages. Default 0.95.
        value_step: in (0, 1], the share of the way that the values go per batch. Default 0.6.
        entropy: ≥ 0, the weight of the entropy. Default 0.05.
        reward_scale: ≥ 0, the reward that counts as 1; 0 takes the largest |reward| that the problem names. Default
            0.0.
    """

    algo = "qppo"

    @named
    def __init__(
        self,
        env: AnyEnv,
        *,
        risk_level: float = 0.1,
        beta: float | None = None,
        seed: int = 0,
        gamma: float | None = None,
        horizon: int | None = None,
        horizon_is_task: bool = True,
        reward_bounds: tuple[float, float] | None = None,
        stage_bins: int = 1,
        collected_bins: int = 1,
        batch_episodes: int = 10,
        epochs: int = 4,
        clip: float = 0.2,
        learning_rate: float = 0.398,
        learning_rate_decay: float | str = "1000 episodes",
        quantile_step: float = 0.1,
        quantile_decay: float | str = "200 episodes",
        slack: float = 0.05,
        gae_lambda: float = 0.95,
        value_step: float = 0.6,
        entropy: float = 0.05,
        reward_scale: float = 0.0,
    ) -> None:
        settings = {
            "stage_bins": stage_bins,
            "collected_bins": collected_bins,
            "batch_episodes": batch_episodes,
            "epochs": epochs,
            "clip": clip,
            "learning_rate": learning_rate,
            "learning_rate_decay": learning_rate_decay,
            "quantile_step": quantile_step,
            "quantile_decay": quantile_decay,
            "slack": slack,
            "gae_lambda": gae_lambda,
            "value_step": value_step,
            "entropy": entropy,
            "reward_scale": reward_scale,
        }
        self._make(env, risk_level, beta, seed, gamma, horizon, horizon_is_task, reward_bounds, settings)
