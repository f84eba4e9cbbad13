"""`bqrl train` on Gymnasium environments: the same run directory as the command line's own problems have."""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import gymnasium

from . import _bqrl, _show
from ._arguments import one_line
from ._model import Model, _subclasses

#: Steps of a training that says nothing else.
_STEPS = 50_000
_ID = re.compile(r"([\w.:-]+/)?[\w.:-]+-v\d+$")
_PREFIX = "gym:"


def is_gymnasium(arguments: Sequence[str]) -> bool:
    """Whether these arguments of the command train on a Gymnasium environment: `gym:ID`, or an id with its version."""
    if not arguments or arguments[0] != "train":
        return False
    names = [word for word in arguments[1:] if word.startswith(_PREFIX) or _ID.match(word)]
    return bool(names) and not any(os.path.exists(name) for name in names)


def _parser() -> argparse.ArgumentParser:
    algos = ", ".join(name for name, _, _ in _bqrl.algos())
    parser = argparse.ArgumentParser(
        prog="bqrl train",
        description="Learn a policy in a Gymnasium environment and measure it by playing. Without gym:ID, `bqrl train --help` shows all options.",
    )
    parser.add_argument("env", metavar="gym:ID", help="the id of a Gymnasium environment with discrete actions, e.g. gym:CartPole-v1")
    parser.add_argument("--env", dest="kwargs", action="append", default=[], metavar="KEY=VALUE", help="an argument of gymnasium.make")
    parser.add_argument("--algo", default="deep-bqrl", metavar="NAME", help=f"the algorithm: {algos} [deep-bqrl]")
    parser.add_argument("--tau", metavar="TAU,…", help="risk level in (0, 1), or several for an algorithm that serves several")
    parser.add_argument("--beta", metavar="BETA,…", help="buffer width in (0, tau] [tau]")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=float, metavar="N", help=f"training steps over all lanes [{_STEPS}]")
    length.add_argument("--episodes", type=float, metavar="N", help="training episodes, instead of steps")
    parser.add_argument("--lanes", type=int, default=1, metavar="N", help="copies of the environment that are played side by side [1]")
    parser.add_argument("--seed", "--seeds", type=int, default=42, metavar="SEED", help="one seed [42]")
    parser.add_argument("--horizon", type=int, metavar="H", help="the longest an episode may be [the environment's time limit]")
    parser.add_argument("--discount", type=float, metavar="G", help="discount factor per stage, in (0, 1] [1]")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="one setting, e.g. --set agent.kappa=1.0, run.evaluate_every or run.evaluation_episodes; may be repeated")  # fmt: skip
    parser.add_argument("--out", metavar="DIR", help="directory of the run [runs/ID-ALGO-1, -2, …]")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
    return parser


def _value(text: str) -> Any:
    """A value as Python or TOML writes it, else text."""
    try:
        return {"true": True, "false": False}[text] if text in ("true", "false") else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _pairs(given: Sequence[str], option: str) -> dict[str, Any]:
    pairs = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ValueError(f"{option} wants KEY=VALUE, got {one_line(text)!r}")
        pairs[key.strip()] = _value(value.strip())
    return pairs


def _floats(text: str | None, option: str) -> list[float] | None:
    try:
        return None if text is None else [float(one) for one in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} wants numbers with commas between them, got {one_line(text or '')!r}") from None


def _model(args: argparse.Namespace, name: str, settings: dict[str, Any]) -> Model:
    kinds = {kind.algo: kind for kind in _subclasses(Model) if kind.__module__ == "bqrl.agents"}
    if args.algo not in kinds:
        raise ValueError(f"unknown algorithm {args.algo!r}, the algorithms are {', '.join(sorted(kinds))}")
    kwargs = _pairs(args.kwargs, "--env")
    if args.lanes < 1:
        raise ValueError(f"--lanes must be at least 1, got {args.lanes}")
    if args.lanes > 1:
        env: Any = gymnasium.make_vec(name, num_envs=args.lanes, vectorization_mode="sync", **kwargs)
    else:
        env = gymnasium.make(name, **kwargs)
    levels, widths = _floats(args.tau, "--tau"), _floats(args.beta, "--beta")
    common: dict[str, Any] = {"seed": args.seed, "gamma": args.discount, "horizon": args.horizon}
    if levels is not None:
        common["risk_level"] = levels
    if widths is not None:
        common["beta"] = widths
    return kinds[args.algo](env, **common, **settings)


def _directory(name: str, algo: str) -> str:
    """The first of runs/ID-ALGO-1, -2, … that is not there."""
    stem = os.path.join("runs", f"{re.sub(r'[^A-Za-z0-9.-]+', '-', name)}-{algo}-")
    return next(stem + str(k) for k in itertools.count(1) if not os.path.exists(stem + str(k)))


def _train(args: argparse.Namespace) -> None:
    name = args.env.removeprefix(_PREFIX)
    given = _pairs(args.settings, "--set")
    run = {key: given.pop(f"run.{key}", None) for key in ("evaluate_every", "evaluation_episodes")}
    for key in given:
        if not key.startswith("agent."):
            raise ValueError(f"--set wants agent.KEY, run.evaluate_every or run.evaluation_episodes, got {one_line(key)!r}")
    model = _model(args, name, {key.removeprefix("agent."): value for key, value in given.items()})
    out = args.out or _directory(name, args.algo)
    length = {"total_episodes": args.episodes} if args.episodes is not None else {"total_timesteps": args.steps or _STEPS}
    model.learn(**length, log_dir=out, **run, progress_bar=not args.quiet)
    with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
        summary = file.read().strip()
    if args.json:
        print(summary)
        return
    facts = json.loads(summary)
    print(f"{args.algo} on {name}: {facts['episodes']} episodes, {facts['steps']} steps, {facts['updates']} updates, {facts['seconds']:.1f} s\n")
    for level in facts["taus"]:
        quantile, ends = level["final_quantile"][0], (level.get("interval") or [None])[0]
        interval = "" if ends is None else f", 95 % interval {_show.number(ends[0])} to {_show.number(ends[1])}"
        words = f"{_show.times(level['tau'])} at least {_show.number(quantile)}"
        print(f"τ = {level['tau']:g}: {words} (mean {_show.number(level['final_mean'][0])}{interval})")
    print(f"The run is in {out}")


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 done, 2 the caller's mistake, 1 failed, 130 interrupted."""
    args = _parser().parse_args(arguments)
    try:
        _train(args)
        return 0
    except KeyboardInterrupt:
        print("error: interrupted after a checkpoint\nhint: bqrl.load(DIR, env).learn(…) goes on in Python", file=sys.stderr)
        return 130
    except (ValueError, TypeError, gymnasium.error.Error, ImportError) as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        return 2
    except (RuntimeError, OSError, FloatingPointError) as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        return 1
