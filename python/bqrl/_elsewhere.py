"""Names that users of other libraries type, and what they are called here."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

#: By the name elsewhere: our keyword, or a sentence where there is none.
_ELSEWHERE: dict[str, str | tuple[str, str]] = {
    "lr": "learning_rate",
    "polyak": "zeta",
    "buffer_size": "replay_capacity",
    "memory_size": "replay_capacity",
    "train_freq": ("updates_per_step", "train_freq=4 is updates_per_step=0.25"),
    "gradient_steps": ("updates_per_step", "minibatches per step of the environment"),
    "exploration_final_eps": "epsilon",
    "final_epsilon": "epsilon",
    "net_arch": "hidden",
    "layers": "hidden",
    "quantiles": "n_quantiles",
    "n_atoms": "n_quantiles",
    "clip_range": "clip",
    "n_epochs": "epochs",
    "ent_coef": ("entropy_bonus", "the weight of the entropy"),
    "target_update_interval": ("zeta", "the target moves a little at every update"),
    "discount": "gamma",
    "norm_obs": "normalize_observations",
    "normalize": "normalize_observations",
    "alpha": "risk_level",
    "quantile": "risk_level",
}

_NOT_HERE = {
    "tau": "risk_level is the level; the rate of the soft update is zeta",
    "policy": "the network follows from the observations, and hidden= sets its layers",
    "policy_kwargs": "hidden and n_quantiles are keywords of their own",
    "learning_starts": "learning starts by itself, after 8 steps and one finished episode",
    "exploration_fraction": "epsilon falls to its last value over the first 5000 steps",
    "exploration_initial_eps": "epsilon begins with 1",
    "max_grad_norm": "gradients are not clipped",
    "optimize_memory_usage": "each observation is stored once",
    "n_envs": "pass a vector environment, such as gymnasium.make_vec(…, num_envs=4)",
    "verbose": "learn(progress_bar=True)",
    "tensorboard_log": "learn(log_dir=…)",
    "device": "there is only the processor",
}


def unknown(kind: str, key: str, known: Sequence[str]) -> str:
    """Why a class has no such keyword, and which one is meant. No guess is made where none is near."""
    said = f"{kind} has no setting {key!r}"
    if key in _NOT_HERE:
        return f"{said}: {_NOT_HERE[key]}"
    ours = _ELSEWHERE.get(key)
    name, why = ours if isinstance(ours, tuple) else (ours, "")
    if name in known:
        return f"{said}: it is called {name} here" + (f", {why}" if why else "")
    near = difflib.get_close_matches(key, known, 1, 0.75)
    if near:
        return f"{said}, the nearest is {near[0]!r}"
    return f"{said}; help(bqrl.{kind}) lists them"


def refuse_policy(kind: str, first: str) -> None:
    """Refuses the name of a policy class where the environment belongs."""
    if first.endswith("Policy"):
        raise TypeError(
            f"the first argument is the environment, got {first!r}: bqrl has no policy classes, write bqrl.{kind}(env, hidden=[64, 64])"
        )
