"""How results look: tables as HTML and as DataFrames, pictures with matplotlib or as SVG."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _bqrl
from ._arguments import path as checked_path

if TYPE_CHECKING:
    import pandas as _pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]


class Picture:
    """A figure as SVG. Notebooks show it; `save` writes it.

    Attributes:
        svg: the drawing, a whole SVG document.
    """

    def __init__(self, svg: str):
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the drawing to `path`, as SVG whatever its name."""
        with open(checked_path(path), "w", encoding="utf-8") as file:
            file.write(self.svg)


def frame(columns: dict[str, Any]) -> _pandas.DataFrame:
    """A DataFrame of columns."""
    try:
        import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError as error:
        raise ImportError("to_dataframe needs pandas: pip install pandas") from error
    return pandas.DataFrame(columns)


def axes(ax: Any = None) -> Any | None:
    """The axes that were given, new ones, or None where matplotlib is not installed."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    return matplotlib.pyplot.subplots(layout="constrained")[1]


def law_curve(ax: Any, law: _bqrl.Law, label: str, **style: Any) -> None:
    """The cumulative distribution of a law as steps."""
    values, total = law.values, law.probabilities.cumsum()
    edge = 0.03 * (values[-1] - values[0]) or 0.5
    x = [values[0] - edge, *values, values[-1] + edge]
    ax.step(x, [0.0, *total, 1.0], where="post", label=label, **style)


def finish_laws(ax: Any, title: str, levels: Sequence[float]) -> None:
    """Levels, axes and the legend of laws."""
    for level in levels:
        ax.axhline(level, color="0.75", linewidth=0.8, zorder=0)
    ax.set(title=title, xlabel="total return R", ylabel="cumulative probability P(R ≤ w)", ylim=(-0.02, 1.03))
    ax.legend(frameon=False)


def number(value: Any) -> str:
    """A number in at most six digits; other values as text."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[Any]], notes: Sequence[str] = ()) -> str:
    """A table as HTML. Everything is text, whatever it contains."""
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{html.escape(number(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    said = "".join(f"<p>{html.escape(note)}</p>" for note in notes)
    return (
        f"<div><p><b>{html.escape(caption)}</b></p>"
        f"<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>{said}</div>"
    )


def times(risk_level: float) -> str:
    """1 − τ in words, as everywhere: "9 times in 10" for 0.1."""
    return _bqrl.often(risk_level)
