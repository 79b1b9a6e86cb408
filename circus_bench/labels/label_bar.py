"""Draw label counts as a bar: the colors of the labels, and a small inline SVG for notebooks."""

from __future__ import annotations

from collections.abc import Mapping

from circus_bench.metrics.shortcut import Label

# Tol's high-contrast scheme, with a dark wine red: color-blind readers tell them apart, and so does gray print.
LABEL_COLORS = {Label.SHORTCUT: "#882e40", Label.COMPOSITION_REQUIRED: "#004488", Label.UNRESOLVED: "#8a8a8a"}

_WIDTH, _HEIGHT = 480, 20  # pixels


def render_label_bar(counts: Mapping[Label, int]) -> str:
    """Render counts per label as an SVG bar; empty where there are none."""
    total = sum(counts.values())
    start, parts = 0.0, []
    for label, count in counts.items():
        width = _WIDTH * count / total if total else 0
        title = f"<title>{label.replace('_', ' ')}: {count:,} of {total:,}</title>"
        color = LABEL_COLORS[label]
        parts.append(f"<rect x='{start:.1f}' width='{width:.1f}' height='{_HEIGHT}' fill='{color}'>{title}</rect>")
        start += width
    return f"<svg width='{_WIDTH}' height='{_HEIGHT}' role='img'>{''.join(parts)}</svg>" if total else ""
