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
from ._model import Model, _subclasses, load

#: Steps of a training that says nothing else.
_STEPS = 50_000
_ID = re.compile(r"([\w.:-]+/)?[\w.:-]+-v\d+$")
_PREFIX = "gym:"
#: The settings of a run that exist here, by section; those of agents are checked where they are made.
_KNOWN = {
    "problem": {"name", "python", "horizon", "discount", "parameters", "normalize_observations"},
    "run": {"tau", "beta", "steps", "episodes", "lanes", "seeds", "evaluate_every", "checkpoint_every", "evaluation_episodes"},
    "agent": None,
}

Settings = dict[str, dict[str, Any]]


class _Mistake(ValueError):
    """The caller's mistake, with a hint."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def is_gymnasium(arguments: Sequence[str]) -> bool:
    """Whether these arguments of the command train on a Gymnasium environment: `gym:ID`, an id with its version, or a run or a
    file of settings that names one."""
    if not arguments or arguments[0] != "train":
        return False
    names = [word for word in arguments[1:] if _is_id(word)]
    if names:
        return not any(os.path.exists(name) for name in names)
    return any(_names_one(path, option) for option in ("--resume", "--config") for path in _values(arguments, option))


def _is_id(word: str) -> bool:
    return word.startswith(_PREFIX) or _ID.match(word) is not None


def _values(arguments: Sequence[str], option: str) -> list[str]:
    after = [value for word, value in itertools.pairwise(arguments) if word == option]
    return after + [word.partition("=")[2] for word in arguments if word.startswith(option + "=")]


def _names_one(path: str, option: str) -> bool:
    """Whether a run directory or a file of settings is about an environment of Python. The command line refuses what is neither."""
    try:
        problem = _bqrl.read_settings(os.path.join(path, "config.toml") if option == "--resume" else path, []).get("problem")
    except (ValueError, OSError):
        return False
    return isinstance(problem, dict) and (problem.get("python") is True or _is_id(str(problem.get("name", ""))))


def _parser() -> argparse.ArgumentParser:
    algos = ", ".join(name for name, _, _ in _bqrl.algos())
    parser = argparse.ArgumentParser(
        prog="bqrl train",
        description="Learn a policy in a Gymnasium environment and measure it by playing. Without gym:ID, `bqrl train --help` shows all options.",
    )
    parser.add_argument("env", nargs="?", metavar="gym:ID", help="the id of a Gymnasium environment with discrete actions, e.g. gym:CartPole-v1")
    parser.add_argument("--env", dest="kwargs", action="append", default=[], metavar="KEY=VALUE", help="an argument of gymnasium.make")
    parser.add_argument("--algo", metavar="NAME", help=f"the algorithm: {algos} [deep-bqrl]")
    parser.add_argument("--tau", metavar="TAU,…", help="risk level in (0, 1), or several for an algorithm that serves several")
    parser.add_argument("--beta", metavar="BETA,…", help="buffer width in (0, tau] [tau]")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=float, metavar="N", help=f"training steps over all lanes [{_STEPS}]")
    length.add_argument("--episodes", type=float, metavar="N", help="training episodes, instead of steps")
    parser.add_argument("--lanes", type=int, metavar="N", help="copies of the environment that are played side by side [1]")
    parser.add_argument("--seeds", "--seed", metavar="SEED,…", help="seeds, one run each, one after the other [42]")
    parser.add_argument("--horizon", type=int, metavar="H", help="the longest an episode may be [the environment's time limit]")
    parser.add_argument("--discount", type=float, metavar="G", help="discount factor per stage, in (0, 1] [1]")
    parser.add_argument("--config", metavar="FILE.toml", help="settings from a TOML file, on top of the algorithm's preset")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="one setting, e.g. --set agent.kappa=1.0 or problem.normalize_observations=false; may be repeated")  # fmt: skip
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--out", metavar="DIR", help="directory of the run [runs/ID-ALGO-1, -2, …]")
    place.add_argument("--resume", metavar="DIR", help="resume an interrupted run")
    parser.add_argument("--force", action="store_true", help="replace the run that is in the directory of --out")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
    return parser


def _value(text: str) -> Any:
    """A value as Python or TOML writes it, else text."""
    try:
        return {"true": True, "false": False}[text] if text in ("true", "false") else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _pairs(given: Sequence[str], option: str) -> dict[str, str]:
    pairs = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ValueError(f"{option} wants KEY=VALUE, got {one_line(text)!r}")
        # As the settings of a run have it, so that a run can be compared with the one to resume.
        pairs[key.strip()] = str(_value(value.strip()))
    return pairs


def _numbers(text: str | None, option: str, kind: type[int] | type[float]) -> list[Any] | None:
    try:
        return None if text is None else [kind(one) for one in text.split(",")]
    except ValueError:
        words = "whole numbers" if kind is int else "numbers"
        raise ValueError(f"{option} wants {words} with commas between them, got {one_line(text or '')!r}") from None


def _whole(value: float | None, option: str) -> int | None:
    if value is not None and not float(value).is_integer():
        raise ValueError(f"{option} must be a whole number, got {value:g}")
    return None if value is None else int(value)


def _flags(args: argparse.Namespace) -> Settings:
    """What the flags say, as a file of settings would."""
    given = {
        "problem": {
            "name": None if args.env is None else args.env.removeprefix(_PREFIX),
            "horizon": args.horizon,
            "discount": args.discount,
            "parameters": _pairs(args.kwargs, "--env") or None,
        },
        "run": {
            "tau": _numbers(args.tau, "--tau", float),
            "beta": _numbers(args.beta, "--beta", float),
            "steps": _whole(args.steps, "--steps"),
            "episodes": _whole(args.episodes, "--episodes"),
            "lanes": args.lanes,
            "seeds": _numbers(args.seeds, "--seeds", int),
        },
        "agent": {"kind": args.algo},
    }
    return {section: {key: value for key, value in keys.items() if value is not None} for section, keys in given.items()}


def _merged(below: Settings, above: Settings) -> Settings:
    """Settings on top of others. A length in steps replaces one in episodes, and the other way round."""
    merged = {section: dict(keys) for section, keys in below.items()}
    for section, keys in above.items():
        known = _KNOWN.get(section, set())
        if section not in _KNOWN or not isinstance(keys, dict):
            raise ValueError(f"unknown section {one_line(section)!r}, the sections are problem, run and agent")
        own = merged.setdefault(section, {})
        for one, other in (("steps", "episodes"), ("episodes", "steps")):
            if section == "run" and one in keys and other not in keys:
                own.pop(other, None)
        for key, value in keys.items():
            if known is not None and key not in known:
                raise ValueError(f"{section} has no setting {one_line(key)!r} here, its settings are {', '.join(sorted(known))}")
            both = key == "parameters" and isinstance(value, dict)
            own[key] = {**own.get(key, {}), **{name: str(one) for name, one in value.items()}} if both else value
    return merged


def _settings(args: argparse.Namespace) -> Settings:
    """The settings of the run: file, flags, overrides; or those of the run to resume, which none of these may change."""
    stored: Settings = {}
    if args.resume is not None:
        stored = _bqrl.read_settings(os.path.join(args.resume, "config.toml"), [])
    wanted = _merged({}, stored)
    if args.config is not None:
        wanted = _merged(wanted, _bqrl.read_settings(args.config, []))
    wanted = _merged(wanted, _flags(args))
    wanted = _merged(wanted, _bqrl.read_settings(None, args.settings))
    if args.resume is None:
        return wanted
    sections = [(section, wanted.get(section, {}), stored.get(section, {})) for section in _KNOWN]
    other = [f"{name}.{key}" for name, ours, theirs in sections for key in sorted({*ours, *theirs}) if ours.get(key) != theirs.get(key)]
    if other:
        raise _Mistake(
            f"{args.resume} was started with other settings: {', '.join(other)}",
            "a run is resumed with the settings it began with; start a new one for others",
        )
    return stored


def _model(settings: Settings, seed: int) -> Model:
    """An untrained model of one seed."""
    problem, run, agent = (settings.get(section, {}) for section in _KNOWN)
    kinds = {kind.algo: kind for kind in _subclasses(Model) if kind.__module__ == "bqrl.agents"}
    algo = agent.get("kind", "deep-bqrl")
    if algo not in kinds:
        raise ValueError(f"unknown algorithm {algo!r}, the algorithms are {', '.join(sorted(kinds))}")
    common: dict[str, Any] = {"seed": seed, "gamma": problem.get("discount"), "horizon": problem.get("horizon")}
    for name, key in (("risk_level", "tau"), ("beta", "beta")):
        if run.get(key):
            common[name] = run[key]
    if problem.get("normalize_observations") is not None:
        common["normalize_observations"] = problem["normalize_observations"]
    own = {key: value for key, value in agent.items() if key != "kind"}
    return kinds[algo](_env(settings), **common, **own)


def _env(settings: Settings) -> Any:
    problem, lanes = settings["problem"], settings.get("run", {}).get("lanes", 1)
    kwargs = {key: _value(value) for key, value in problem.get("parameters", {}).items()}
    if lanes < 1:
        raise ValueError(f"--lanes must be at least 1, got {lanes}")
    if lanes > 1:
        return gymnasium.make_vec(problem["name"], num_envs=lanes, vectorization_mode="sync", **kwargs)
    return gymnasium.make(problem["name"], **kwargs)


def _directory(name: str, algo: str) -> str:
    """The first of runs/ID-ALGO-1, -2, … that is not there."""
    stem = os.path.join("runs", f"{re.sub(r'[^A-Za-z0-9.-]+', '-', name)}-{algo}-")
    return next(stem + str(k) for k in itertools.count(1) if not os.path.exists(stem + str(k)))


def _every(settings: dict[str, Any]) -> str | None:
    """The time between evaluations, which is also that between checkpoints."""
    every, saves = settings.get("evaluate_every"), settings.get("checkpoint_every")
    if saves is not None and saves != every:
        raise ValueError(f"run.checkpoint_every must be run.evaluate_every in a Gymnasium environment, got {one_line(str(saves))!r}")
    return f"{every:g} episodes" if isinstance(every, (int, float)) else every


def _train(args: argparse.Namespace) -> None:
    if args.force and args.out is None:
        raise ValueError("--force needs --out, the directory of the run to replace")
    settings = _settings(args)
    name = settings.get("problem", {}).get("name")
    if not name:
        raise ValueError("which environment? Give gym:ID")
    settings["problem"]["name"] = name.removeprefix(_PREFIX)
    run = settings.setdefault("run", {})
    algo, seeds = settings.get("agent", {}).get("kind", "deep-bqrl"), run.get("seeds", [42])
    if not isinstance(seeds, list) or not seeds or len({*map(str, seeds)}) < len(seeds):
        raise ValueError(f"run.seeds must be one seed or several different ones, got {seeds}")
    steps, episodes = run.get("steps"), run.get("episodes")
    steps = _STEPS if steps is None and episodes is None else steps
    for key, amount in (("steps", steps), ("episodes", episodes)):
        if amount is not None and (not isinstance(amount, int) or amount < 1):
            raise ValueError(f"{key} must be a whole number of at least 1, got {amount}")
    out = args.resume or args.out
    log = {
        "evaluate_every": _every(run),
        "evaluation_episodes": run.get("evaluation_episodes"),
        "seeds": seeds,
        "joins": args.resume is not None,
        "replaces": args.force,
    }
    for seed in seeds:
        # Before the first one, nothing is written: its settings may be refused.
        model = _resumed(out, seed, settings) if log["joins"] else None
        model = model or _model(settings, seed)
        out = args.out = out or _directory(settings["problem"]["name"], algo)
        model._learn_in(log | {"path": os.path.abspath(out)}, steps, episodes, not args.quiet)
        log["joins"] = True
    with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
        _report(file.read().strip(), args.json, out)


def _resumed(out: str, seed: int, settings: Settings) -> Model | None:
    """A seed as its last checkpoint left it; None if it has none."""
    checkpoints = os.path.join(out, f"seed-{seed}", "checkpoints")
    if not os.path.isdir(checkpoints) or not any(name.isdigit() for name in os.listdir(checkpoints)):
        return None
    return load(out, _env(settings), seed=seed)


def _report(summary: str, as_json: bool, out: str) -> None:
    if as_json:
        print(summary)
        return
    facts = json.loads(summary)
    each = " a seed" if len(facts["seeds"]) > 1 else ""
    print(
        f"{facts['algo']} on {facts['problem']}: {facts['episodes']} episodes{each}, {facts['env_steps']} steps, {facts['updates']} updates, "
        f"{facts['seconds']:.1f} s\n"
    )
    for k, seed in enumerate(facts["seeds"]):
        for level in facts["taus"]:
            ends = (level.get("interval") or {k: None})[k]
            interval = "" if ends is None else f", 95 % interval {_show.number(ends[0])} to {_show.number(ends[1])}"
            words = f"{_show.times(level['tau'])} at least {_show.number(level['final_quantile'][k])}"
            of_seed = f"seed {seed}, " if each else ""
            print(f"{of_seed}τ = {level['tau']:g}: {words} (mean {_show.number(level['final_mean'][k])}{interval})")
    print(f"The run is in {out}")


#: What an OSError says that is the caller's mistake: another directory is to be named.
_REFUSED = ("already holds a run", "is not empty and not a run", "is writing this run", "ot a directory")


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 done, 2 the caller's mistake, 1 failed, 130 interrupted."""
    args = _parser().parse_args(arguments)
    again = ""
    try:
        _train(args)
        return 0
    except KeyboardInterrupt:
        said, code = "interrupted after a checkpoint", 130
        again = f"`bqrl train --resume {args.resume or args.out}` resumes it" if args.resume or args.out else ""
    except (ValueError, TypeError, gymnasium.error.Error, ImportError) as error:
        said, again, code = str(error), getattr(error, "hint", ""), 2
    except (RuntimeError, OSError, FloatingPointError) as error:
        said = str(error)
        code = 2 if isinstance(error, OSError) and any(words in said for words in _REFUSED) else 1
        again = "--resume resumes it, --force replaces it" if isinstance(error, FileExistsError) else ""
    print(f"error: {one_line(said)}" + (f"\nhint: {one_line(again)}" if again else ""), file=sys.stderr)
    return code
