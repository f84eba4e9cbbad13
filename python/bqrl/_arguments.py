"""Arguments of callers, checked; and values in messages."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

# The largest whole number that is exact in JSON and in floating point.
_MOST = 2**53


def whole(name: str, value: Any, least: int, most: int = _MOST) -> int:
    """A whole number in a range; 1e4 is one."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    if not isinstance(value, (int, np.integer)) or not least <= value <= most:
        above = f" and at most {most}" if isinstance(value, (int, np.integer)) and value > most else ""
        raise ValueError(f"{name} must be a whole number of at least {least}{above}, got {shown(value)}")
    return int(value)


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def path(value: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> str:
    """A path to write to or to read from."""
    given = os.fsdecode(value)
    if not given:
        raise ValueError("the path is empty")
    if "\0" in given:
        raise ValueError(f"a path cannot contain a null character, got {shown(given)}")
    if given.startswith("~"):
        # Taken literally it would make a directory of this name, which is dangerous to remove.
        raise ValueError(f"~ is not expanded: use os.path.expanduser, or ./~ for a directory of that name, got {shown(given)}")
    return given


def shown(value: Any) -> str:
    """A value as Python prints it, on one line, without control characters, shortened."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 – the message is about something else.
        text = f"<{type(value).__name__}>"
    return one_line(text if len(text) <= 160 else text[:157] + "…")


def one_line(text: str) -> str:
    """A text that may come from a file or an environment, on one line and without control characters."""
    words = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)
