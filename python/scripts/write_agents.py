"""Writes `python/bqrl/agents.py`: one class per algorithm, with every setting as a keyword.

    python python/scripts/write_agents.py

Names and defaults come from the presets, through the installed package. The words are below. A test fails when the file is not
what this script writes, and when a range below is not the one that the agents check.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from bqrl import _bqrl

TARGET = Path(__file__).parents[1] / "bqrl/agents.py"
WIDTH = 120

#: Class, algorithm, whether its policy looks at the collected reward, and its docstring without the arguments.
CLASSES = [
    (
        "DeepBQRL",
        "deep-bqrl",
        True,
        """Deep-BQRL, the paper's Algorithm 1: an ensemble of quantile critics, trained for one level.

        Nothing needs to be scaled: vectors are normalised by their running mean and standard deviation, and returns by their
        own scale, which is found while learning. The first update comes after 8 steps and one finished episode.""",
    ),
    (
        "QRDQN",
        "qr-dqn",
        False,
        """QR-DQN, risk-neutral: quantile regression for the mean. It serves every level with the same policy.

        Network, replay, update and exploration are those of `TargetTracking`, so that the two can be compared. Nothing needs
        to be scaled: vectors are normalised by their running mean and standard deviation, and returns by their own scale, which
        is found while learning. The first update comes after 8 steps and one finished episode. The policy does not depend on
        the collected reward, so `predict` needs no rewards.""",
    ),
    (
        "TargetTracking",
        "target-tracking",
        True,
        """Target tracking: one run serves every risk level.

        It learns the best probability of reaching any return, for all returns at once. The risk level is chosen when it acts:
        at the start of an episode, `predict(…, risk_level=0.1)` takes the largest return that it expects to reach 9 times in
        10. It then holds this return as its target for the whole episode. Where the target leaves a choice, the mean decides.

        Nothing needs to be scaled: vectors are normalised by their running mean and standard deviation, and returns by their
        own scale, which is found while learning. The first update comes after 8 steps and one finished episode.""",
    ),
    (
        "UCBBQRL",
        "ucb-bqrl",
        True,
        """UCB-BQRL: optimistic planning on counts, for one level. It needs `Discrete` observations.

        A reconstruction of the paper's model-based reference. It counts transitions and plans again when a count has doubled.
        Planning time grows with states × actions × horizon × returns, so it is for small tables.""",
    ),
    (
        "PPO",
        "ppo",
        False,
        """PPO with tables, risk-neutral: a clipped policy gradient. It needs `Discrete` observations.

        It serves every level with the same policy, which is stochastic: `predict(…, deterministic=False)` draws from it.""",
    ),
    (
        "TRPO",
        "trpo",
        False,
        """TRPO with tables, risk-neutral: a policy gradient inside a trust region. It needs `Discrete` observations.

        It serves every level with the same policy, which is stochastic: `predict(…, deterministic=False)` draws from it.""",
    ),
    (
        "VaRQ",
        "var-q",
        True,
        """VaR-Q-learning (Hau et al., AISTATS 2025) with tables, for one level. It needs `Discrete` observations.""",
    ),
    (
        "QPPO",
        "qppo",
        True,
        """QPPO (Jiang, Hu and Peng, arXiv 2305.07248): a quantile policy gradient with tables, for one level.

        It needs `Discrete` observations. Its policy is stochastic: `predict(…, deterministic=False)` draws from it.""",
    ),
]

NETWORKS = {
    "n_quantiles": ("int", "from 1 to 1024", "K, the quantiles of a critic"),
    "convolutions": (
        "Sequence[Sequence[int]]",
        "",
        "channels, kernel and stride of the convolutions in front of the hidden layers, at most 8 of them, where observations are "
        "images",
    ),
    "hidden": ("Sequence[int]", "", "widths of the hidden layers, at most 16 of them"),
    "kappa": ("float", "> 0", "κ of the quantile loss, in units of the returns"),
    "zeta": ("float", "in (0, 1]", "ζ, the rate of the soft update; larger during the first updates"),
    "learning_rate": ("float", "> 0", "the step size of Adam"),
    "batch_size": ("int", "from 1 to 65536", "transitions in a minibatch"),
    "replay_capacity": ("int", "", "the transitions that are remembered; at least `batch_size`"),
    "updates_per_step": (
        "float",
        "in [0, 1000]",
        "minibatches per step of the environment; 0.25 is one in four steps. `Discrete` observations get more during the first "
        "40,000 steps",
    ),
    "optimism": ("float", "", "the first value of every action, in units of the returns"),
    "optimistic_tries": ("int", "", "tries of an action in a `Discrete` state, or one like it, before it loses this value; 0 for none"),
    "reward_scale": ("float", "≥ 0", "the return that counts as 1 for the networks; 0 finds it while learning"),
    "kernels": (
        'Literal["auto", "avx512", "avx2", "neon", "scalar"]',
        "",
        'the instructions to compute with: "auto", "avx512", "avx2", "neon" or "scalar"',
    ),
}
HEADS = {"n_critics": ("int", "from 1 to 16", "critics with common hidden layers; the least of them values the next action")}
GRADIENTS = {
    "episodes_per_update": ("int", "from 1 to 1000000", "episodes of one policy before it is changed"),
    "gae_lambda": ("float", "in [0, 1]", "λ of the advantages"),
    "value_rate": ("float", "in (0, 1]", "the least step size of the values"),
    "value_prior": ("float", "≥ 0", "visits by which values are shrunk towards those of their group"),
    "stage_widths": ("Sequence[int]", "", "widths of the groups of stages whose tables add up; [1] is one row per stage and state"),
}
SPAN = "float | str"
SPAN_WORDS = 'such as "500 episodes" or "20000 steps"; a number counts episodes'

#: Type, range and meaning of every setting. A range may be left out where it is part of the meaning.
SETTINGS: dict[str, dict[str, tuple[str, str, str]]] = {
    "deep-bqrl": NETWORKS
    | {
        "n_critics": ("int", "from 2 to 256", "M, the networks of the ensemble"),
        "kappa": ("float", "> 0", "κ of the Huber loss, in units of the returns"),
        "updates_per_step": (
            "float",
            "in [0, 1000]",
            "minibatches per step of the environment; 0.25 is one in four steps",
        ),
        "score": (
            'Literal["buffered", "point", "mean"]',
            "",
            'the statistic to maximise: "buffered" (the paper\'s), "point" (one quantile) or "mean"',
        ),
        "tie_break": ("float", "≥ 0", "the weight of the mean in the score"),
        "lambda_0": ("float", "≥ 0", "the first weight of the exploration bonus"),
        "lambda_decay": (SPAN, "", f"the time after which half of that weight is left, {SPAN_WORDS}"),
    },
    "qr-dqn": NETWORKS
    | HEADS
    | {
        "epsilon": (
            "float",
            "in [0, 1]",
            "the share of random actions; if it is positive, it falls to this from 1 over the first 5000 steps",
        ),
        "critic_discount": (
            "float",
            "in (0, 1]",
            "what a step ahead counts for the critic alone. Returns are measured with `gamma`",
        ),
    },
    "target-tracking": NETWORKS
    | HEADS
    | {
        "ramps": (
            "Sequence[float]",
            "",
            "at most 8 widths in (0, 10] for the buffered quantile (`beta=` in `predict`), as shares of the range of returns. 1 is "
            "CVaR; with [] the point quantile's target is used instead",
        ),
        "epsilon": (
            "float",
            "in [0, 1]",
            "the share of random actions in the episodes that explore; if it is positive, it falls to this from 1 over the first 5000 "
            "steps",
        ),
    },
    "ucb-bqrl": {
        "radius_scale": ("float", "≥ 0", "the factor on the confidence radius; 0 trusts the counts"),
        "delta": ("float", "in (0, 1)", "δ in the confidence radius"),
        "stationary": ("bool", "", "one table of counts for all stages, where the problem is known to be the same at all of them"),
        "objective": ('Literal["point", "buffered"]', "", 'what is planned for: "point" (the quantile) or "buffered"'),
        "output": ('Literal["nominal", "optimistic"]', "", 'the policy that it outputs: the best on the estimate, or the one it explores with'),
        "prior": (
            'Literal["uniform", "pooled", "shifted", "adaptive"]',
            "",
            "the belief about the next states of an action before it is tried",
        ),
        "prior_strength": ("float", "≥ 0", "the number of observations that the prior counts as"),
        "slack": ("float", "in [0, 1]", "the share of a quantile's slack that exploration uses to raise the mean"),
        "replan_every": ("int", "", "episodes after which it plans again even if no count has doubled; 0 waits for a count"),
        "max_returns": ("int", "from 2 to 4194304", "the most return values of a plan; with more, rewards are rounded down"),
    },
    "ppo": GRADIENTS
    | {
        "epochs": ("int", "from 1 to 10000", "passes over the episodes of an update"),
        "minibatch_size": ("int", "from 1 to 16777216", "decisions per gradient step"),
        "clip": ("float", "> 0", "ε of the clipped ratio"),
        "learning_rate": ("float", "> 0", "the first step size of the policy"),
        "learning_rate_decay": (SPAN, "", f"the time after which half of that step size is left, {SPAN_WORDS}"),
        "entropy_bonus": ("float", "≥ 0", "the weight of the entropy"),
        "target_kl": ("float", "≥ 0", "the change of the policy after which no further pass is made; 0 for no limit"),
    },
    "trpo": GRADIENTS
    | {
        "max_kl": ("float", "> 0", "the first radius of the trust region"),
        "max_kl_decay": (SPAN, "", f"the time after which half of that radius is left, {SPAN_WORDS}"),
        "damping": ("float", "≥ 0", "added to the diagonal of the Fisher matrix"),
        "cg_iterations": ("int", "from 1 to 10000", "steps of conjugate gradients at most"),
        "line_search_steps": ("int", "from 1 to 1000", "points that are tried on the line"),
        "backtrack_factor": ("float", "in (0, 1)", "how much shorter the next point's step is"),
    },
    "var-q": {
        "n_levels": ("int", "from 1 to 10000", "J, the levels that the tables have"),
        "kappa": ("float", "in [1e-6, 1]", "κ of the soft quantile loss, in units of `reward_scale`"),
        "initial_value": ("float", "", "the first value of every quantile, in units of `reward_scale`"),
        "step_0": ("float", "> 0", "the first step size, in units of `reward_scale`"),
        "step_decay": ("float", "> 0", "updates of an entry after which its step has halved"),
        "epsilon_0": ("float", "in [0, 1]", "the first share of random actions"),
        "epsilon_decay": (SPAN, "", f"the time after which half of that share is left, {SPAN_WORDS}"),
        "replay_episodes": ("int", "from 0 to 10000", "earlier episodes that are learned from again after each episode"),
        "share_stages": ("bool", "", "whether a transition teaches every stage, where the problem is known to be the same at all of them"),
        "tie_tolerance": ("float", "≥ 0", "values this close count as equal, in units of `reward_scale`"),
        "reward_scale": ("float", "≥ 0", "the reward that counts as 1; 0 takes the largest |reward| that the problem names"),
    },
    "qppo": {
        "stage_bins": ("int", "", "parts of the horizon that have rows of their own; 1 is the paper's, 0 stands for every stage"),
        "collected_bins": ("int", "from 1 to 1000000", "parts of the range of the collected reward that have rows of their own"),
        "batch_episodes": ("int", "from 1 to 1000000", "episodes in a batch"),
        "epochs": ("int", "from 1 to 10000", "steps of the policy per batch"),
        "clip": ("float", "> 0", "ε of the clipped ratio"),
        "learning_rate": ("float", "> 0", "the first step size of the policy"),
        "learning_rate_decay": (SPAN, "", f"the time after which half of that step size is left, {SPAN_WORDS}"),
        "quantile_step": ("float", "> 0", "the first step size of the quantile, in units of `reward_scale`"),
        "quantile_decay": (SPAN, "", f"the time after which half of that step size is left, {SPAN_WORDS}"),
        "slack": ("float", "≥ 0", "how far above the quantile a return still counts as bad, in units of `reward_scale`"),
        "gae_lambda": ("float", "in [0, 1]", "λ of the advantages"),
        "value_step": ("float", "in (0, 1]", "the share of the way that the values go per batch"),
        "entropy": ("float", "≥ 0", "the weight of the entropy"),
        "reward_scale": ("float", "≥ 0", "the reward that counts as 1; 0 takes the largest |reward| that the problem names"),
    },
}

#: What every class takes beside its settings. `{levels}` depends on whether it is trained for one level.
COMMON = {
    "env": "a Gymnasium environment or vector environment, or a vector environment of Stable-Baselines3 or EnvPool, with `Discrete` "
    "actions; or the id of one for `gymnasium.make`. {observations}",
    "risk_level": "τ in (0, 1), the percentile of the return to act well at. {levels}",
    "beta": "β in (0, risk_level], the width of the buffer below the level; by default as wide as the level.",
    "seed": "≥ 0; everything random follows from it, the seeds of episodes included. Default 0.",
    "gamma": "γ in (0, 1]: a reward of stage h counts γ^h. By default 1, or the environment's own where it is a `bqrl/…` one.",
    "horizon": "≥ 1, the longest an episode may be; by default the environment's time limit. Without one it is required.",
    "horizon_is_task": "True ends the return at the horizon: nothing is earned after it, so nothing is bootstrapped there. False treats "
    "the horizon as a cut-off: the agent learns as if the episode went on. Default True.",
    "reward_bounds": "(low, high) of one step's reward, where known.{bounds}",
}
#: The same of those with networks.
NORMALIZE = (
    "whether vectors are normalised by their running mean and standard deviation (`observation_moments`) and cut at ±5; False "
    "passes the numbers on as they are, and is refused for other observations. Default True."
)

HEAD = '''"""The agents, one class per algorithm.

Written by `python/scripts/write_agents.py` from the presets. Change the script, not this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ._measure import Evaluation
from ._model import AnyEnv, Model, load, named

__all__ = [{names}]
'''


#: What the kinds of observations are that have defaults of their own.
OBSERVATIONS = """"Vectors" are all observations other than `Discrete`. Of these, "planes" are images of bits or bytes, and "frames" are
    images of at least 32 × 32 cells; what is not said for them is as for the kind before."""


def _code(value: Any) -> str:
    """A default as Python writes it, in double quotes; lists become tuples, which cannot be changed by accident."""
    if isinstance(value, list):
        return "(" + ", ".join(map(_code, value)) + ("," if len(value) == 1 else "") + ")"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _said(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _entry(name: str, words: str) -> str:
    return textwrap.fill(f"{name}: {words}", WIDTH - 4, initial_indent=" " * 8, subsequent_indent=" " * 12, break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


def _class(name: str, algo: str, looks: bool, about: str) -> str:
    kinds = {kind: _bqrl.preset(algo, kind)["agent"] for kind in ("vector", "planes", "frames")}
    table = _bqrl.preset(algo)
    one_level = {known: one for known, _, one in _bqrl.algos()}[algo]
    words = SETTINGS[algo]
    keys = list(words)
    if differ := set(words) ^ set(table["agent"]):
        raise ValueError(f"{algo}: the preset and SETTINGS differ in {sorted(differ)}")
    tabular = algo not in ("deep-bqrl", "qr-dqn", "target-tracking")
    levels = table["run"]["tau"]
    parameters = [
        "self",
        "env: AnyEnv",
        "*",
        f"risk_level: float = {levels[0]!r}" if one_level else f"risk_level: float | Sequence[float] = {_code(levels)}",
        "beta: float | None = None" if one_level else "beta: float | Sequence[float] | None = None",
        "seed: int = 0",
        "gamma: float | None = None",
        "horizon: int | None = None",
        "horizon_is_task: bool = True",
        "reward_bounds: tuple[float, float] | None = None",
    ]
    observations = (
        "Observations are `Discrete`."
        if tabular
        else "Observations may be `Discrete`, `Box`, `MultiDiscrete`, `MultiBinary`, or a flat `Dict` or `Tuple` of these."
    )
    said = {
        "levels": f"Default {levels[0]!r}."
        if one_level
        else f"One or several; `predict` and `evaluate` take any. Default {tuple(levels)!r}.",
        "observations": observations,
        "bounds": " Required outside `bqrl/…` environments." if algo == "ucb-bqrl" else "",
    }
    if levels == [0.1] and not one_level:
        said["levels"] = "One or several; `predict` and `evaluate` take any. Default 0.1."
        parameters[3] = "risk_level: float | Sequence[float] = 0.1"
    entries = [_entry(key, text.format(**said)) for key, text in COMMON.items()]
    if not tabular:
        parameters.append("normalize_observations: bool = True")
        entries.append(_entry("normalize_observations", NORMALIZE))
    for key in keys:
        kind, allowed, meaning = words[key]
        default = before = table["agent"][key]
        defaults = f"Default {_said(default)}"
        # Each kind of observations replaces what the one before has.
        for of, settings in kinds.items():
            if settings[key] != before:
                before = settings[key]
                defaults += f", for {of.removesuffix('s')}s {_said(before)}"
        differs = "for" in defaults
        parameters.append(f"{key}: {kind} | None = None" if differs else f"{key}: {kind} = {_code(default)}")
        entries.append(_entry(key, f"{allowed + ', ' if allowed else ''}{meaning}. {defaults}."))
    note = "\n\n    " + OBSERVATIONS if not tabular else ""
    about = textwrap.indent(textwrap.dedent(" " * 8 + about), "    ").strip()
    lines = [
        f"class {name}(Model):",
        f'    """{about}{note}\n',
        "    Args:",
        *entries,
        '    """\n',
        f'    algo = "{algo}"',
        *([] if looks else ["    _looks_at_rewards = False"]),
        *(["    _has_a_policy_per_level = True"] if algo == "target-tracking" else []),
        "",
        "    @named",
        "    def __init__(",
        *(f"        {parameter}," for parameter in parameters),
        "    ) -> None:",
        "        settings = {",
        *(f'            "{key}": {key},' for key in keys),
        "        }",
        "        self._make(env, risk_level, beta, seed, gamma, horizon, horizon_is_task, reward_bounds, settings"
        + (")" if tabular else ", normalize_observations)"),
    ]
    return "\n".join(lines) + "\n"


def text() -> str:
    """The whole file."""
    names = sorted([name for name, *_ in CLASSES] + ["Evaluation", "Model", "load"])
    head = HEAD.format(names=", ".join(f'"{name}"' for name in names))
    return "\n\n".join([head, *(_class(*one) for one in CLASSES)])


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
