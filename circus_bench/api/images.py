"""Write images as they are sent to a service, within its limits.

An encoder is given decoded pixels, so the original file cannot be passed on. PNG loses nothing: the black image of the
text-only condition stays black, and equal pixels are equal bytes. An image above a vendor's limits is scaled down in
proportion (Lanczos), to the most pixels allowed, then in steps of a tenth until the file is small enough.
"""

from __future__ import annotations

import io

from PIL import Image

_STEP = 0.9


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image to RGB; mteb hands images over in the mode of their files."""
    return image if image.mode == "RGB" else image.convert("RGB")


def sent_size(size: tuple[int, int], *, max_pixels: float) -> tuple[int, int]:
    """Compute the size at which an image is sent, as far as pixels alone decide it.

    Example:
        >>> sent_size((4000, 8000), max_pixels=16_000_000)
        (2828, 5656)
        >>> sent_size((640, 480), max_pixels=16_000_000)
        (640, 480)
    """
    width, height = size
    factor = min(1.0, (max_pixels / (width * height)) ** 0.5)
    return max(1, int(width * factor)), max(1, int(height * factor))


def to_png(image: Image.Image, *, max_pixels: float, max_bytes: int) -> bytes:
    """Write the bytes of a PNG file within the limits.

    Args:
        image: of mode RGB.
        max_pixels: width times height at most.
        max_bytes: size of the file at most.
    """
    size = sent_size(image.size, max_pixels=max_pixels)
    while True:
        file = io.BytesIO()
        (image if size == image.size else image.resize(size, Image.Resampling.LANCZOS)).save(file, "PNG")
        if file.tell() <= max_bytes or size == (1, 1):
            return file.getvalue()
        size = max(1, int(size[0] * _STEP)), max(1, int(size[1] * _STEP))
