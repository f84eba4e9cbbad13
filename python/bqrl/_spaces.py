"""Gymnasium spaces as the agents know them: an index, or an array of numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ._arguments import one_line, shown

Space = gymnasium.Space[Any]


def n_actions(space: Space) -> int:
    """The number of actions; only `Discrete` spaces have one."""
    if not isinstance(space, spaces.Discrete):
        raise TypeError(f"bqrl needs a Discrete action space, got {shown(space)}")
    return int(space.n)


def observations(space: Space, ordered: bool, stack: int) -> dict[str, Any]:
    """The description that `Learner` takes. `stack` frames lie behind one another in an image, oldest first."""
    dense: dict[str, Any] = {"n": None, "start": 0, "ordered": False, "stack": None, "bits": False, "channels_last": False}
    if isinstance(space, spaces.Discrete):
        return dense | {"n": int(space.n), "start": int(space.start), "ordered": ordered, "shape": []}
    if isinstance(space, spaces.Box):
        # Bytes of an image are remembered as bytes; the networks see them between 0 and 1, as in Stable-Baselines3.
        is_image = space.dtype == np.uint8 and bool(np.all(space.low == 0) and np.all(space.high == 255))
        even = len(space.shape) > 0 and space.shape[0] % stack == 0
        frames = (stack if even else 1) if is_image and space.shape else None
        bits = space.dtype == np.bool_
        channels_last = (is_image or bits) and _channels_last(space.shape, frames)
        return dense | {"shape": list(space.shape), "stack": frames, "bits": bits, "channels_last": channels_last}
    if _is_planes(space):
        return dense | {"shape": list(space.shape or ()), "bits": True}
    _check_flat(space, space)
    return dense | {"shape": [int(spaces.flatdim(space))]}


def _is_planes(space: Space) -> bool:
    """Whether observations are planes of bits, channels first, as our own games have them."""
    return isinstance(space, spaces.MultiBinary) and len(space.shape or ()) == 3


def _channels_last(shape: tuple[int, ...], stack: int | None) -> bool:
    """Whether the last axis of an image holds its channels. They are fewer than the cells of a side, or as many where sizes do not tell."""
    if len(shape) == 3:
        return stack in (1, None) and shape[2] <= shape[0]
    return len(shape) == 4 and shape[3] <= shape[1]


def _check_flat(space: Space, whole: Space) -> None:
    parts: list[Space]
    if isinstance(space, spaces.Dict):
        parts = list(space.spaces.values())
    elif isinstance(space, spaces.Tuple):
        parts = list(space.spaces)
    elif isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
        return
    else:
        raise TypeError(
            "bqrl needs Discrete, Box, MultiDiscrete or MultiBinary observations, or a flat Dict or Tuple of these, "
            f"got {shown(whole)}"
        )
    for part in parts:
        if not isinstance(part, (spaces.Discrete, spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
            raise TypeError(f"bqrl needs a flat Dict or Tuple of observations; {shown(part)} lies inside {shown(whole)}")


def reader(space: Space) -> Callable[[Any], Any] | None:
    """What makes an observation an index or an array; `None` when it is one already."""
    if isinstance(space, (spaces.Discrete, spaces.Box)) or _is_planes(space):
        return None

    def flatten(observation: Any) -> Any:
        try:
            return spaces.flatten(space, observation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            why = one_line(f"{type(error).__name__}: {error}")
            raise ValueError(f"want an observation of {shown(space)}, got {shown(observation)} ({why})") from error

    return flatten


def rows(space: Space, batch: Any, n: int) -> Iterator[Any]:
    """The observations of a vector environment, one by one."""
    for column in _columns(space, batch):
        if not hasattr(column, "__len__") or len(column) != n:
            raise ValueError(f"want {n} observations, got {shown(column)}")
    if isinstance(space, (spaces.Discrete, spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        return iter(batch)
    if isinstance(space, spaces.Dict):
        return ({key: values[i] for key, values in batch.items()} for i in range(n))
    return (tuple(values[i] for values in batch) for i in range(n))


def _columns(space: Space, batch: Any) -> list[Any]:
    """The arrays that hold a row per lane each."""
    if isinstance(space, spaces.Dict):
        if not isinstance(batch, dict):
            raise ValueError(f"want a dictionary of observations, got {shown(batch)}")
        return list(batch.values())
    if isinstance(space, spaces.Tuple):
        if not isinstance(batch, (tuple, list)):
            raise ValueError(f"want a tuple of observations, got {shown(batch)}")
        return list(batch)
    return [batch]


def is_batch(space: Space, observation: Any) -> bool:
    """True for several observations, False for one."""
    if isinstance(space, spaces.Discrete):
        return np.ndim(observation) == 1
    if isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        ndim = np.ndim(observation)
        if ndim not in (len(space.shape), len(space.shape) + 1):
            raise ValueError(f"want an observation of shape {space.shape}, or several, got {np.shape(observation)}")
        return ndim > len(space.shape)
    parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)  # type: ignore[attr-defined]
    try:
        return any(is_batch(part, observation[key]) for key, part in parts)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"want an observation of {shown(space)}, got {shown(observation)}") from error


def to_json(space: Space) -> Any:
    """A space as plain values, so that a saved model needs no environment."""
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.Box):
        # As text: JSON has no infinity.
        return {
            "kind": "Box",
            "low": [repr(float(v)) for v in space.low.ravel()],
            "high": [repr(float(v)) for v in space.high.ravel()],
            "shape": list(space.shape),
            "dtype": str(space.dtype),
        }
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}
    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "spaces": [[key, to_json(part)] for key, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "spaces": [to_json(part) for part in space.spaces]}
    raise TypeError(f"cannot save {space}")


def from_json(value: Any) -> Space:
    """The space again."""
    kind = value["kind"]
    if kind == "Discrete":
        return spaces.Discrete(value["n"], start=value["start"])
    if kind == "Box":
        dtype, shape = np.dtype(value["dtype"]), tuple(value["shape"])
        low, high = (np.array([float(v) for v in value[end]], dtype).reshape(shape) for end in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.array(value["nvec"]), start=np.array(value["start"]))
    if kind == "MultiBinary":
        return spaces.MultiBinary(value["n"])
    if kind == "Dict":
        return spaces.Dict({key: from_json(part) for key, part in value["spaces"]})
    if kind == "Tuple":
        return spaces.Tuple([from_json(part) for part in value["spaces"]])
    raise ValueError(f"unknown space {shown(value)}")


def restored(text: str, described: tuple[tuple[int, int] | None, list[int]]) -> tuple[Space, int]:
    """The observation space of a saved model and its first action, if they fit what its networks were made for.

    The text comes from a file, which may hold anything.
    """
    try:
        extra = json.loads(text)
        start = extra["action_start"]
        if not isinstance(start, int) or abs(start) >= 2**62:
            raise ValueError(f"the first action is {shown(start)}")
        space = from_json(extra["observation_space"])
        made = observations(space, False, 1)
    except RecursionError:
        raise ValueError("the observation space is nested too deeply") from None
    except Exception as error:  # noqa: BLE001 – whatever NumPy and Gymnasium say of values that make no space.
        raise ValueError(f"the observation space cannot be restored ({one_line(f'{type(error).__name__}: {error}')})") from None
    n, shape = (None if made["n"] is None else (made["n"], made["start"])), made["shape"]
    if (n, shape) != described:
        raise ValueError(f"the observation space {shown(space)} is not the one that the model was made for")
    return space, start
