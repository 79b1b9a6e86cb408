"""Render objects as small, self-contained HTML for notebooks: a table of facts, and thumbnails of images."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping
from html import escape

from PIL import Image

from circus_bench.images import UnreadableImageError, decode

_JPEG_QUALITY = 85


def facts_table(title: str, facts: Mapping[str, object], *, below: str = "") -> str:
    """Render facts as an HTML table of two columns; texts are escaped.

    Args:
        title: shown above.
        facts: name to value; numbers get thousands separators.
        below: HTML that follows the table.
    """
    shown = ((name, f"{value:,}" if isinstance(value, int) else str(value)) for name, value in facts.items())
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(text)}</td></tr>"
        for name, text in shown
    )
    return f"<div><strong>{escape(title)}</strong><table>{rows}</table>{below}</div>"


def gallery_strip(images: Mapping[str, bytes], ids: Iterable[str], *, side: int = 96) -> str:
    """Render images as a row of thumbnails with their ids; those that cannot be shown are named."""
    shown = []
    for image_id in ids:
        try:
            picture = f"<img src='{thumbnail_uri(decode(images[image_id]).image, side)}' alt=''>"
        except (KeyError, UnreadableImageError):
            picture = "<em>unreadable</em>"
        shown.append(f"<figure style='display:inline-block;margin:4px'>{picture}<br>{escape(image_id)}</figure>")
    return f"<div>{''.join(shown)}</div>"


def thumbnail_uri(image: Image.Image, side: int) -> str:
    """Shrink an image to fit a square and return it as a data URI: PNG or JPEG, whichever is smaller."""
    image.info.clear()  # a color profile would be written into every PNG
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    files = []
    for kind, options in (("png", {"optimize": True}), ("jpeg", {"quality": _JPEG_QUALITY, "optimize": True})):
        file = io.BytesIO()
        image.save(file, kind, **options)
        files.append((kind, file.getvalue()))
    kind, data = min(files, key=lambda entry: len(entry[1]))
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
