"""Draw the figures of the audit report with matplotlib, write them as SVG that keeps its text, and make thumbnails."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from circus_bench.audit.scores import Scores
from circus_bench.audit.sensitivity import LabelShares
from circus_bench.benchmark import Condition
from circus_bench.images import UnreadableImageError, decode
from circus_bench.labels.label_bar import LABEL_COLORS
from circus_bench.labels.labels import Subset
from circus_bench.metrics.shortcut import Label
from circus_bench.notebook import thumbnail_uri

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THUMBNAIL = 160
"""The longer side of an embedded picture in pixels, at most."""

SUBSET_NAMES = {Subset.FULL: "all queries", Subset.SF: "shortcut-free queries", Subset.V: "validated queries"}

CONDITION_COLORS = {  # of the scheme of LABEL_COLORS
    Condition.MULTIMODAL: "#004488",
    Condition.TEXT_ONLY: "#ddaa33",
    Condition.IMAGE_ONLY: "#bb5566",
}

_MARKERS = {Label.SHORTCUT: "o", Label.COMPOSITION_REQUIRED: "s", Label.UNRESOLVED: "^"}
_INK, _FAINT = "#222222", "#dddddd"
_WIDTH = 4.5  # inches, that is 432 CSS pixels: two stand side by side on a desk, one fills a phone
_BAR, _GROUP = 0.78, 4.3  # thickness of a bar, and distance from one model to the next, in rows
_NAME_LENGTH = 46

_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "circus-bench",
    "text.parse_math": False,  # a model name may hold a dollar sign
    "font.family": "sans-serif",
    "font.size": 8.5,
    "text.color": _INK,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": _INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": "#888888",
    "ytick.color": "#888888",
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.4,
}


def words(name: str) -> str:
    """Return a label, condition or policy as it is printed in running text.

    Example:
        >>> words(Label.COMPOSITION_REQUIRED)
        'composition required'
    """
    return str(name).replace("_", " ")


def hit_rate_limit(scores: Sequence[Scores], *, k: int) -> int:
    """Return the right end in per cent of an axis that holds all hit rates, so that figures can share it."""
    rates = [of_model.by_condition[condition][f"hit_rate@{k}"] for of_model in scores for condition in Condition]
    highs = [rate.high for rate in rates if not math.isnan(rate.high)]
    return 25 * max(1, math.ceil(4 * max(highs, default=1)))


def draw_hit_rates(scores: Sequence[Scores], *, k: int, limit: int = 100) -> Figure:
    """Draw the hit rate of each model under the three conditions, with confidence intervals and the chance level.

    A condition without a number is marked "undefined" in place of its bar.

    Args:
        scores: of the models on one subset.
        k: the cut-off of the hit rate.
        limit: right end of the axis in per cent; see `hit_rate_limit`.
    """
    with canvas(0.75 + 0.155 * _GROUP * len(scores)) as figure:
        axes = figure.add_axes((0.2, 0.32 / figure.get_figheight(), 0.77, 1 - 0.42 / figure.get_figheight()))
        for place, of_model in enumerate(scores):
            _bars(axes, of_model, k=k, top=place * _GROUP)
        rows = [
            (place * _GROUP + row + 1, condition)
            for place in range(len(scores))
            for row, condition in enumerate(Condition)
        ]
        axes.set_yticks([y for y, _ in rows], [words(condition) for _, condition in rows])
        axes.set_ylim(len(scores) * _GROUP - 0.3, -0.7)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlim(0, 1.14 * limit)  # room for the number of a full bar
        ticks = [tick * limit // 5 for tick in range(6)]
        axes.set_xticks(ticks, [f"{tick} %" for tick in ticks])
        axes.grid(axis="x", color=_FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        return figure


def draw_k_sweep(sweep: Mapping[int, LabelShares], *, k: int) -> Figure:
    """Draw the share of each label against the cut-off, with 95 % bands; `k` is the audit's own cut-off."""
    cutoffs, entries = list(sweep), list(sweep.values())
    with canvas(2.9) as figure:
        axes = figure.add_axes((0.105, 0.17, 0.62, 0.76))
        axes.set_xscale("log")
        axes.axvline(k, color=_INK, linewidth=0.7, linestyle=(0, (2, 2)))
        axes.text(k, 103, f"this audit, K = {k}", ha="center", va="bottom", fontsize=7.5)
        for label in Label:
            low, middle, high = (
                [100 * getattr(entry.shares[label], end) for entry in entries] for end in ("low", "value", "high")
            )
            color = LABEL_COLORS[label]
            axes.fill_between(cutoffs, low, high, color=color, alpha=0.18, linewidth=0)
            axes.plot(cutoffs, middle, color=color, marker=_MARKERS[label], markersize=3.5)
        _name_lines(axes, {label: 100 * entries[-1].shares[label].value for label in Label})
        axes.set_ylim(0, 102)
        axes.set_yticks(range(0, 101, 25), [f"{tick} %" for tick in range(0, 101, 25)])
        axes.set_xticks(cutoffs, [str(cutoff) for cutoff in cutoffs])
        axes.minorticks_off()
        axes.set_xlabel("K")
        axes.grid(axis="y", color=_FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        return figure


def _bars(axes: Axes, of_model: Scores, *, k: int, top: float) -> None:
    name = of_model.model if len(of_model.model) <= _NAME_LENGTH else of_model.model[: _NAME_LENGTH - 1] + "…"
    axes.text(
        0, top, name, fontweight="bold", va="center", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    )
    for row, condition in enumerate(Condition):
        y = top + row + 1
        rate = of_model.by_condition[condition][f"hit_rate@{k}"]
        if math.isnan(rate.value):
            axes.text(0, y, " undefined", va="center", style="italic")
            continue
        low, value, high = (100 * number for number in (rate.low, rate.value, rate.high))
        axes.barh(y, value, height=_BAR, color=CONDITION_COLORS[condition])
        # A white outline keeps the whisker visible on the dark bar.
        axes.plot([low, high], [y, y], color="white", linewidth=2.6, solid_capstyle="butt")
        axes.plot([low, high], [y, y], color=_INK, linewidth=1, marker="|", markersize=4, markeredgewidth=1)
        axes.annotate(f"{value:.1f}", (high, y), xytext=(5, 0), textcoords="offset points", va="center")
        chance = of_model.chance.get(condition)
        if chance is not None and not math.isnan(chance.value):
            ends = [y - _BAR / 2 - 0.09, y + _BAR / 2 + 0.09]
            axes.plot([100 * chance.value] * 2, ends, color="white", linewidth=3, solid_capstyle="butt", clip_on=False)
            axes.plot([100 * chance.value] * 2, ends, color=_INK, linewidth=1.6, solid_capstyle="butt", clip_on=False)


def _name_lines(axes: Axes, ends: Mapping[Label, float]) -> None:
    """Write each label's name at the end of its line, moved apart where lines end together."""
    gap = 7.0  # per cent of the axis: the height of a line of text
    at: dict[Label, float] = {}
    lowest = 1.5
    for label in sorted(ends, key=lambda label: ends[label]):
        at[label] = lowest = max(ends[label], lowest)
        lowest += gap
    overshoot = max(max(at.values()) - 98, 0)
    for label in sorted(at, key=lambda label: -at[label]):
        axes.annotate(
            words(label),
            (1, at[label] - overshoot),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color="#5c5c5c" if label is Label.UNRESOLVED else LABEL_COLORS[label],
            annotation_clip=False,
        )


@contextmanager
def canvas(height: float) -> Iterator[Figure]:
    """Yield an empty figure of `height` inches, to be drawn within the block."""
    from matplotlib.figure import Figure

    with _style():
        yield Figure(figsize=(_WIDTH, height))


def _style() -> AbstractContextManager[None]:
    import matplotlib.style

    # The salt of the ids can only be set globally; the context puts everything back, and first of all keeps the
    # reader's own matplotlibrc out, so that the same audit gives the same bytes.
    return matplotlib.style.context(["default", _STYLE])


def to_svg(figure: Figure, *, name: str, description: str) -> str:
    """Write a figure as an `<svg>` element with a text for screen readers; `name` keeps its ids apart from others'."""
    file = io.StringIO()
    metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with _style():
        figure.savefig(file, format="svg", transparent=True, metadata=metadata)
    whole = file.getvalue()
    svg = whole[whole.index("<svg") :]
    # Ids are unique within a figure only, and an HTML file holds several.
    prefix = re.sub(r"[^a-z0-9]+", "-", name.lower())
    svg = re.sub(r'( id="| xlink:href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    size = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt" viewBox="[^"]*"', svg)
    assert size, "matplotlib writes the size into the first tag"
    width, height = size.groups()
    pixels = round(float(width) * 4 / 3)
    tag = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{description}" style="max-width:{pixels}px">'
    return tag + svg[svg.index(">") + 1 :].strip()


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small picture, or the reason why there is none.

    Attributes:
        key: the element id it is embedded under.
        image_id: id of the image.
        width: pixels.
        height: pixels.
        uri: a data URI; empty when there is no picture.
        missing: why there is no picture; empty when there is one.
    """

    key: str
    image_id: str
    width: int = 0
    height: int = 0
    uri: str = ""
    missing: str = ""


class Thumbnails:
    """Makes thumbnails of a benchmark's images, each once.

    Args:
        images: image id to the bytes of its file; None when there are no pictures.
    """

    def __init__(self, images: Mapping[str, bytes] | None) -> None:
        self._images = images
        self._made: dict[str, Thumbnail] = {}

    def of(self, image_id: str) -> Thumbnail:
        """Return the thumbnail of an image. What cannot be decoded is said, not replaced."""
        if image_id not in self._made:
            self._made[image_id] = self._make(f"picture-{len(self._made)}", image_id)
        return self._made[image_id]

    @property
    def embedded(self) -> list[Thumbnail]:
        """The pictures asked for so far, in the order of asking."""
        return [thumbnail for thumbnail in self._made.values() if thumbnail.uri]

    def _make(self, key: str, image_id: str) -> Thumbnail:
        if self._images is None:
            return Thumbnail(key, image_id)
        try:
            image = decode(self._images[image_id]).image
        except KeyError:
            return Thumbnail(key, image_id, missing="missing")
        except UnreadableImageError as error:
            return Thumbnail(key, image_id, missing=words(error.reason))
        uri = thumbnail_uri(image, THUMBNAIL)  # which shrinks it
        return Thumbnail(key, image_id, *image.size, uri=uri)
