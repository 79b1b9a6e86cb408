"""Plot the agreement of each rater with each other one."""

from __future__ import annotations

import math
from pathlib import Path

from circus_bench._typing import StrPath
from circus_bench.audit.figures import canvas, to_svg
from circus_bench.io import write_text
from circus_bench.validation.agreement import RaterMatrix

_INCHES = 4.5  # width of a canvas
_LEFT, _TOP, _BOTTOM = 1.35, 0.3, 0.3  # inches around the cells
_CELL = 0.42  # inches, at most
_NAME_LENGTH = 16
_NAMESPACES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
_COLORS, _STRONGEST = "Blues", 1.6  # the scale ends before it is too dark for black numbers


def plot_rater_matrix(matrix: RaterMatrix) -> str:
    """Draw the agreement of each pair of raters: the share of equal labels in per cent, above it, Cohen's kappa below.

    Returns:
        An `<svg>` element. Above the diagonal stand the shares, below it the kappas; a pair without shared items, or
        without a kappa, is marked by a dash.
    """
    n = len(matrix.raters)
    cell = min(_CELL, (_INCHES - _LEFT) / max(n, 1))
    height = _TOP + cell * n + _BOTTOM
    with canvas(height) as figure:
        axes = figure.add_axes((_LEFT / _INCHES, _BOTTOM / height, cell * n / _INCHES, cell * n / height))
        shown = [[_value(matrix, row, column) for column in range(n)] for row in range(n)]
        if n:
            axes.imshow(shown, cmap=_COLORS, vmin=0, vmax=_STRONGEST)
        for row in range(n):
            for column in range(n):
                if row != column:
                    text = _text(shown[row][column], kappa=row > column)
                    axes.text(column, row, text, ha="center", va="center", fontsize=min(8.5, 24 * cell))
        names = [name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…" for name in matrix.raters]
        axes.set_yticks(range(n), [f"{name}  {place}" for place, name in enumerate(names, start=1)])
        axes.set_xticks(range(n), [str(place) for place in range(1, n + 1)])
        axes.tick_params(length=0, labeltop=True, labelbottom=False)
        axes.spines[:].set_visible(False)
        figure.text(0.02, 0.08 / height, "above the diagonal: equal labels in %; below: Cohen's kappa", fontsize=7.5)
        return to_svg(figure, name="rater-matrix", description="Agreement of each rater with each other one")


def write_rater_matrix(path: StrPath, matrix: RaterMatrix) -> None:
    """Write `plot_rater_matrix` as an SVG file."""
    write_text(Path(path), plot_rater_matrix(matrix).replace("<svg ", f"<svg {_NAMESPACES} ", 1))


def _value(matrix: RaterMatrix, row: int, column: int) -> float:
    return float((matrix.kappa if row > column else matrix.agreement)[row, column])


def _text(value: float, *, kappa: bool) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.2f}" if kappa else f"{100 * value:.0f}"
