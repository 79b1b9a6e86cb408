"""Images that break such tools: rows 1 to 13 of the table of breaking inputs."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image, ImageFile, ImageOps, PngImagePlugin, features

from circus_bench.benchmark import Benchmark
from circus_bench.errors import ImageError
from circus_bench.hub.loading import load_benchmark
from circus_bench.hub.writer import save_benchmark
from circus_bench.images import (
    MAX_PIXELS,
    MIN_SIDE,
    ImageFiles,
    ImageFlag,
    Unreadable,
    UnreadableImageError,
    black,
    decode,
    digest,
    inspect_images,
)

Encode = Callable[..., bytes]
Noise = Callable[..., Image.Image]

SIDE = MIN_SIDE
ORIENTED_FORMATS = [
    pytest.param("JPEG", {}, id="jpeg"),
    pytest.param("PNG", {}, id="png"),
    pytest.param("WEBP", {"lossless": True}, id="webp"),
    pytest.param("TIFF", {}, id="tiff"),
]
needs_avif = pytest.mark.skipif(not features.check("avif"), reason="this Pillow was built without AVIF")


def png(width: int, height: int, *, depth: int, color: int, rows: bytes = b"", chunks: tuple[bytes, ...] = ()) -> bytes:
    """A PNG file from its parts: some kinds cannot be written with Pillow, and a bomb should cost nothing."""
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    parts = (b"IHDR" + head, *chunks, b"IDAT" + zlib.compress(rows), b"IEND")
    framed = (struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def sixteen_bit_gray(levels: list[int], *, transparent: int | None = None) -> bytes:
    """A 16-bit gray PNG with one column of pixels for each level."""
    row = b"\0" + struct.pack(f">{len(levels)}H", *levels)
    chunks = () if transparent is None else (b"tRNS" + struct.pack(">H", transparent),)
    return png(len(levels), SIDE, depth=16, color=0, rows=row * SIDE, chunks=chunks)


def orientation_exif(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    return exif


def exif_block(orientation: int) -> bytes:
    """An EXIF block of 72 bytes whose last ones belong to a description."""
    exif = orientation_exif(orientation)
    exif[ExifTags.Base.ImageDescription] = "hello world this is a text"
    return exif.tobytes()


def near(image: Image.Image, color: tuple[int, int, int], *, within: int) -> bool:
    distance = np.abs(np.asarray(image).astype(int) - np.array(color))
    return bool(distance.max() <= within)


# 1. 16-bit PNG


def test_16_bit_gray_is_rescaled_by_its_depth() -> None:
    # 16 bits are 8 bits times 257 (65535 = 255 * 257), so each of the 256 exact multiples comes back.
    decoded = decode(sixteen_bit_gray([257 * level for level in range(256)]))
    assert [decoded.image.getpixel((x, 0)) for x in range(256)] == [(level,) * 3 for level in range(256)]
    assert decoded.flags == {ImageFlag.SIXTEEN_BIT}


def test_16_bit_gray_is_rounded_to_the_nearest_level() -> None:
    # 128 / 257 = 0.498 -> 0; 129 / 257 = 0.502 -> 1; 32768 / 257 = 127.502 -> 128; 65406 / 257 = 254.498 -> 254.
    levels = [128, 129, 32768, 65406] * (SIDE // 4)
    decoded = decode(sixteen_bit_gray(levels)).image
    assert [decoded.getpixel((x, 0))[0] for x in range(4)] == [0, 1, 128, 254]


def test_16_bit_gray_equals_its_8_bit_twin(encode_image: Encode) -> None:
    levels = [0, 10, 200, 255] * (SIDE // 4)
    eight = Image.fromarray(np.array([levels] * SIDE, dtype=np.uint8))
    sixteen = decode(sixteen_bit_gray([257 * level for level in levels]))
    assert digest(sixteen.image) == digest(decode(encode_image(eight, "PNG")).image)


def test_16_bit_gray_with_a_transparent_level_is_composited_on_white() -> None:
    # Level 1000 is declared transparent, so its pixels are white; 25700 = 100 * 257 is not.
    decoded = decode(sixteen_bit_gray([1000, 25700] * (SIDE // 2), transparent=1000))
    assert decoded.image.getpixel((0, 0)) == (255, 255, 255)
    assert decoded.image.getpixel((1, 0)) == (100, 100, 100)
    assert decoded.flags == {ImageFlag.SIXTEEN_BIT, ImageFlag.ALPHA}


@pytest.mark.parametrize("mode", ["I", "F"])
def test_numbers_of_unknown_range_are_refused(encode_image: Encode, mode: str) -> None:
    with pytest.raises(UnreadableImageError) as raised:
        decode(encode_image(Image.new(mode, (SIDE, SIDE), 1), "TIFF"))
    assert raised.value.reason is Unreadable.UNKNOWN_RANGE


# 2. RGBA with a hidden color


@pytest.mark.parametrize("image_format", ["PNG", "WEBP", "TIFF"])
def test_a_hidden_color_does_not_show(encode_image: Encode, image_format: str) -> None:
    hidden = Image.new("RGBA", (SIDE, SIDE), (255, 0, 0, 0))
    options = {"lossless": True, "exact": True} if image_format == "WEBP" else {}
    decoded = decode(encode_image(hidden, image_format, **options))
    assert decoded.image.getcolors() == [(SIDE * SIDE, (255, 255, 255))]
    assert decoded.flags == {ImageFlag.ALPHA}


def test_half_transparent_black_becomes_gray(encode_image: Encode) -> None:
    decoded = decode(encode_image(Image.new("RGBA", (SIDE, SIDE), (0, 0, 0, 128)), "PNG"))
    # 0 * 128/255 + 255 * 127/255 = 127.
    assert decoded.image.getcolors() == [(SIDE * SIDE, (127, 127, 127))]


def test_gray_with_alpha_is_composited_on_white(encode_image: Encode) -> None:
    decoded = decode(encode_image(Image.new("LA", (SIDE, SIDE), (0, 128)), "PNG"))
    assert decoded.image.getcolors() == [(SIDE * SIDE, (127, 127, 127))]
    assert decoded.flags == {ImageFlag.ALPHA}


def test_an_opaque_alpha_channel_changes_no_pixel(encode_image: Encode, noise: Noise) -> None:
    opaque = noise((SIDE, SIDE))
    opaque.putalpha(255)
    assert digest(decode(encode_image(opaque, "PNG")).image) == digest(noise((SIDE, SIDE)))


def test_an_rgb_image_with_a_transparent_color_is_composited_on_white(encode_image: Encode) -> None:
    image = Image.new("RGB", (SIDE, SIDE), (1, 2, 3))
    image.putpixel((0, 0), (9, 9, 9))
    decoded = decode(encode_image(image, "PNG", transparency=(1, 2, 3)))
    assert decoded.image.getpixel((0, 0)) == (9, 9, 9)
    assert decoded.image.getpixel((1, 1)) == (255, 255, 255)
    assert decoded.flags == {ImageFlag.ALPHA}


# 3. palettes with transparency


@pytest.fixture
def palette_image() -> Image.Image:
    """Columns of palette entries red, blue, black, red, ..."""
    image = Image.new("P", (SIDE, SIDE))
    image.putpalette([255, 0, 0, 0, 0, 255, 0, 0, 0])
    image.putdata([x % 3 for _ in range(SIDE) for x in range(SIDE)])
    return image


def test_a_palette_without_transparency_keeps_its_colors(encode_image: Encode, palette_image: Image.Image) -> None:
    decoded = decode(encode_image(palette_image, "PNG"))
    assert [decoded.image.getpixel((x, 0)) for x in range(3)] == [(255, 0, 0), (0, 0, 255), (0, 0, 0)]
    assert decoded.flags == frozenset()


def test_transparency_bytes_of_a_palette_are_composited_on_white(
    encode_image: Encode, palette_image: Image.Image
) -> None:
    decoded = decode(encode_image(palette_image, "PNG", transparency=bytes([0, 255, 128])))
    # Red at alpha 0 is white, blue at alpha 255 is itself, black at alpha 128 is 255 * 127/255 = 127.
    assert [decoded.image.getpixel((x, 0)) for x in range(3)] == [(255, 255, 255), (0, 0, 255), (127, 127, 127)]
    assert decoded.flags == {ImageFlag.ALPHA}


@pytest.mark.parametrize("image_format", ["PNG", "GIF"])
def test_a_transparent_palette_entry_is_white(
    encode_image: Encode, palette_image: Image.Image, image_format: str
) -> None:
    decoded = decode(encode_image(palette_image, image_format, transparency=1))
    assert [decoded.image.getpixel((x, 0)) for x in range(3)] == [(255, 0, 0), (255, 255, 255), (0, 0, 0)]
    assert decoded.flags == {ImageFlag.ALPHA}


def test_a_palette_with_an_alpha_channel_is_composited_on_white(
    encode_image: Encode, palette_image: Image.Image
) -> None:
    with_alpha = palette_image.convert("PA")
    with_alpha.putalpha(128)
    data = encode_image(with_alpha, "TIFF")
    assert Image.open(io.BytesIO(data)).mode == "PA"
    decoded = decode(data)
    # A full channel stays 255 * 128/255 + 127 = 255, an empty one becomes 127.
    assert [decoded.image.getpixel((x, 0)) for x in range(3)] == [(255, 127, 127), (127, 127, 255), (127, 127, 127)]
    assert decoded.flags == {ImageFlag.ALPHA}


# 4. CMYK and YCCK


def test_a_cmyk_jpeg_becomes_rgb(encode_image: Encode) -> None:
    data = encode_image(Image.new("CMYK", (40, 30), (0, 255, 255, 0)), "JPEG", quality=95)
    decoded = decode(data)
    assert decoded.image.mode == "RGB"
    # No cyan and full magenta and yellow are red; JPEG rounding moves a flat color by a level or two.
    assert near(decoded.image, (255, 0, 0), within=3)


def test_the_black_of_a_cmyk_jpeg_darkens(encode_image: Encode) -> None:
    data = encode_image(Image.new("CMYK", (40, 30), (0, 0, 0, 155)), "JPEG", quality=95)
    # Without inks, R = G = B = 255 - K = 100.
    assert near(decode(data).image, (100, 100, 100), within=3)


def test_a_ycck_jpeg_becomes_rgb(encode_image: Encode) -> None:
    # The inks wanted: C, M, Y, K = 200, 100, 50, 0, that is RGB 55, 155, 205. YCCK stores (C, M, Y) as if it were RGB
    # turned to YCbCr. Pillow writes plain CMYK, inverted, with an Adobe marker that says so (transform 0): store the
    # YCbCr values as inks, then set the marker's transform to 2 (YCCK).
    luma, blue, red = Image.new("RGB", (1, 1), (200, 100, 50)).convert("YCbCr").getpixel((0, 0))
    cmyk = Image.new("CMYK", (40, 30), (255 - luma, 255 - blue, 255 - red, 0))
    data = bytearray(encode_image(cmyk, "JPEG", quality=100))
    transform = data.index(b"Adobe") + len(b"Adobe") + 6  # after a version and two words of flags, 2 bytes each
    assert data[transform] == 0
    data[transform] = 2
    assert near(decode(bytes(data)).image, (55, 155, 205), within=3)


# 5. animations


@pytest.mark.parametrize(
    ("image_format", "options"), [("GIF", {}), ("WEBP", {"lossless": True}), ("PNG", {}), ("TIFF", {})]
)
def test_the_first_frame_is_used_and_flagged(
    encode_image: Encode, image_format: str, options: dict[str, object]
) -> None:
    first, second = Image.new("RGB", (SIDE, SIDE), "red"), Image.new("RGB", (SIDE, SIDE), "blue")
    decoded = decode(encode_image(first, image_format, save_all=True, append_images=[second], **options))
    assert decoded.image.getcolors() == [(SIDE * SIDE, (255, 0, 0))]
    assert decoded.flags == {ImageFlag.ANIMATED}


@pytest.mark.parametrize("image_format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_a_single_frame_is_not_flagged(encode_image: Encode, image_format: str) -> None:
    assert decode(encode_image(Image.new("RGB", (SIDE, SIDE), "red"), image_format)).flags == frozenset()


def test_a_photograph_with_a_preview_is_not_an_animation(encode_image: Encode, noise: Noise) -> None:
    data = encode_image(noise((60, 40)), "MPO", save_all=True, append_images=[noise((30, 20))])
    assert decode(data).flags == frozenset()


# 6. truncated files


@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=["baseline", "progressive"])
def test_a_jpeg_without_its_last_2_percent_is_truncated(
    encode_image: Encode, noise: Noise, options: dict[str, object]
) -> None:
    data = encode_image(noise((200, 150)), "JPEG", **options)
    with pytest.raises(UnreadableImageError) as raised:
        decode(data[: len(data) * 98 // 100])
    assert raised.value.reason is Unreadable.TRUNCATED


def test_a_truncated_real_photograph_is_truncated(shared: Path) -> None:
    data = next((shared / "data" / "photos" / "clothing").rglob("*.jpg")).read_bytes()
    with pytest.raises(UnreadableImageError) as raised:
        decode(data[: len(data) * 98 // 100])
    assert raised.value.reason is Unreadable.TRUNCATED


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_no_truncated_file_passes_for_the_whole_picture(encode_image: Encode, noise: Noise, image_format: str) -> None:
    data = encode_image(noise((30, 29)), image_format)
    whole = digest(decode(data).image)
    silent = []
    for length in range(1, len(data), 7):
        try:
            decoded = decode(data[:length])
        except UnreadableImageError:
            continue
        # Bytes after the last pixel (checksums, end markers) may be missing: nothing of the picture is.
        if digest(decoded.image) != whole:
            silent.append(length)
    assert silent == []


def test_pillows_switch_for_truncated_images_is_refused(
    encode_image: Encode, noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(ImageError, match="LOAD_TRUNCATED_IMAGES is set"):
        decode(encode_image(noise((30, 30)), "JPEG"))


# 7. no image at all


def test_an_empty_file_is_unreadable() -> None:
    with pytest.raises(UnreadableImageError) as raised:
        decode(b"")
    assert raised.value.reason is Unreadable.EMPTY


def test_an_html_page_is_not_an_image_and_the_message_shows_its_start() -> None:
    with pytest.raises(UnreadableImageError, match="<!DOCTYPE html>") as raised:
        decode(b"<!DOCTYPE html><html><body>404 Not Found</body></html>")
    assert raised.value.reason is Unreadable.NOT_AN_IMAGE


def test_bad_files_of_a_folder_are_listed_and_counted(encode_image: Encode, noise: Noise, tmp_path: Path) -> None:
    good = encode_image(noise((60, 50)), "JPEG")
    (tmp_path / "good.jpg").write_bytes(good)
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "page.jpg").write_bytes(b"<html>404</html>")
    (tmp_path / "cut.jpg").write_bytes(good[: len(good) * 98 // 100])
    images = ImageFiles.folder(tmp_path)
    inspection = inspect_images(images, [*images, "absent"])
    assert list(inspection.readable) == ["good"]
    assert inspection.unreadable == {
        "cut": Unreadable.TRUNCATED,
        "empty": Unreadable.EMPTY,
        "page": Unreadable.NOT_AN_IMAGE,
        "absent": Unreadable.MISSING,
    }


@needs_avif
@pytest.mark.parametrize(("box", "skipped"), [(b"iloc", 8), (b"mdat", 0)], ids=["header", "pixels"])
def test_a_damaged_avif_is_unreadable(encode_image: Encode, noise: Noise, box: bytes, skipped: int) -> None:
    # The pixels lie in the box `mdat`; the box `iloc` says, after 8 bytes, which item is found where.
    data = bytearray(encode_image(noise((40, 30)), "AVIF"))
    start = data.index(box) + len(box) + skipped
    data[start : start + 4] = b"\xff" * 4
    with pytest.raises(UnreadableImageError):
        decode(bytes(data))


def test_an_unknown_variant_of_a_known_format_is_unreadable() -> None:
    # A DDS header (124 bytes) that names no pixel format.
    with pytest.raises(UnreadableImageError):
        decode(b"DDS " + struct.pack("<7I", 124, 0x1007, SIDE, SIDE, 0, 0, 0) + bytes(96))


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@given(
    image_format=st.sampled_from(["JPEG", "PNG", "GIF", "WEBP", "BMP"]),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.floats(0, 1),
)
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_bytes_give_an_rgb_image_or_a_reason(
    encode_image: Encode,
    noise: Noise,
    image_format: str,
    changes: list[tuple[float, int]],
    cut: float,
) -> None:
    options = {"exif": exif_block(6)} if image_format in {"JPEG", "PNG", "WEBP"} else {}
    data = bytearray(encode_image(noise((24, 30)), image_format, **options))
    for place, value in changes:
        data[int(place * len(data))] = value
    # Half of the examples keep their full length.
    damaged = bytes(data[: max(1, int(2 * cut * len(data)))])
    try:
        decoded = decode(damaged, max_pixels=1_000_000)
    except UnreadableImageError:
        return
    assert decoded.image.mode == "RGB"
    assert min(decoded.image.size) >= MIN_SIDE


# 8. EXIF orientation


@pytest.mark.parametrize(("image_format", "options"), ORIENTED_FORMATS)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_is_applied_as_pillow_applies_it(
    encode_image: Encode, noise: Noise, image_format: str, options: dict[str, object], orientation: int
) -> None:
    data = encode_image(noise((60, 40)), image_format, exif=orientation_exif(orientation), **options)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    decoded = decode(data)
    # Orientations 5 to 8 swap the sides.
    assert decoded.image.size == ((40, 60) if orientation >= 5 else (60, 40))
    assert decoded.image.tobytes() == expected.tobytes()
    assert decoded.flags == ({ImageFlag.ROTATED} if orientation > 1 else frozenset())


def test_an_orientation_of_6_turns_100_by_50_upright(encode_image: Encode) -> None:
    image = Image.new("RGB", (100, 50))
    image.putpixel((0, 0), (255, 0, 0))
    decoded = decode(encode_image(image, "PNG", exif=orientation_exif(6)))
    assert decoded.image.size == (50, 100)
    # Orientation 6: turn by 90 degrees clockwise, so the top left corner comes to the top right.
    assert decoded.image.getpixel((49, 0)) == (255, 0, 0)


def test_a_thin_image_is_turned_before_it_is_padded(encode_image: Encode) -> None:
    decoded = decode(encode_image(Image.new("RGB", (100, 3)), "PNG", exif=orientation_exif(6)))
    assert decoded.image.size == (MIN_SIDE, 100)
    assert decoded.flags == {ImageFlag.ROTATED, ImageFlag.PADDED}


@pytest.mark.parametrize("orientation", [0, 9])
def test_an_orientation_that_does_not_exist_changes_nothing(
    encode_image: Encode, noise: Noise, orientation: int
) -> None:
    decoded = decode(encode_image(noise((60, 40)), "PNG", exif=orientation_exif(orientation)))
    assert decoded.image.tobytes() == noise((60, 40)).tobytes()
    assert decoded.flags == frozenset()


# 9. broken metadata


BROKEN_XMP = b'<x:xmpmeta note="\xff\xfe\x80"/>'


@pytest.fixture
def strict_xmp(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Pillow that decodes XMP as UTF-8 while it reads EXIF, as some releases do (huggingface/datasets#7668)."""
    getexif = Image.Image.getexif

    def strict(self: Image.Image) -> Image.Exif:
        if "xmp" in self.info:
            self.info["xmp"].decode("utf-8")
        return getexif(self)

    monkeypatch.setattr(Image.Image, "getexif", strict)


@pytest.mark.parametrize(("image_format", "options"), ORIENTED_FORMATS[:3])
def test_invalid_xmp_bytes_do_not_stop_the_image(
    encode_image: Encode, noise: Noise, image_format: str, options: dict[str, object]
) -> None:
    xmp = _xmp_options(image_format, BROKEN_XMP)
    plain = decode(encode_image(noise((60, 40)), image_format, **options)).image
    assert digest(decode(encode_image(noise((60, 40)), image_format, **options, **xmp)).image) == digest(plain)


@pytest.mark.parametrize("image_format", ["JPEG", "WEBP"])
@pytest.mark.usefixtures("strict_xmp")
def test_a_unicode_error_in_xmp_is_flagged(encode_image: Encode, noise: Noise, image_format: str) -> None:
    decoded = decode(encode_image(noise((60, 40)), image_format, xmp=BROKEN_XMP))
    assert decoded.image.size == (60, 40)
    assert decoded.flags == {ImageFlag.BROKEN_METADATA}


@pytest.mark.parametrize("image_format", ["JPEG", "WEBP"])
@pytest.mark.usefixtures("strict_xmp")
def test_a_unicode_error_in_xmp_does_not_lose_the_exif_orientation(
    encode_image: Encode, noise: Noise, image_format: str
) -> None:
    decoded = decode(encode_image(noise((60, 40)), image_format, xmp=BROKEN_XMP, exif=orientation_exif(6)))
    assert decoded.image.size == (40, 60)
    assert decoded.flags == {ImageFlag.BROKEN_METADATA, ImageFlag.ROTATED}


def test_the_exif_orientation_goes_before_that_of_invalid_xmp(encode_image: Encode, noise: Noise) -> None:
    xmp = b'<x note="\xff\xfe" tiff:Orientation="6"/>'
    decoded = decode(encode_image(noise((60, 40)), "JPEG", xmp=xmp, exif=orientation_exif(3)))
    # 3 is a half turn: the sides stay.
    assert decoded.image.size == (60, 40)


@pytest.mark.parametrize(("image_format", "options"), ORIENTED_FORMATS[:3])
def test_an_exif_block_of_garbage_is_flagged(
    encode_image: Encode, noise: Noise, image_format: str, options: dict[str, object]
) -> None:
    decoded = decode(encode_image(noise((60, 40)), image_format, exif=b"Exif\0\0garbage!garbage!", **options))
    assert decoded.image.size == (60, 40)
    assert decoded.flags == {ImageFlag.BROKEN_METADATA}


@pytest.mark.parametrize(("image_format", "options"), ORIENTED_FORMATS[:3])
@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_an_exif_block_that_was_cut_short_is_flagged(
    encode_image: Encode, noise: Noise, image_format: str, options: dict[str, object]
) -> None:
    decoded = decode(encode_image(noise((60, 40)), image_format, exif=exif_block(6)[:-5], **options))
    assert ImageFlag.BROKEN_METADATA in decoded.flags


def test_a_png_profile_that_is_no_hexadecimal_is_flagged(encode_image: Encode, noise: Noise) -> None:
    info = PngImagePlugin.PngInfo()
    info.add_text("Raw profile type exif", "\nexif\n  4\nzzzz\n")
    decoded = decode(encode_image(noise((60, 40)), "PNG", pnginfo=info))
    assert digest(decoded.image) == digest(noise((60, 40)))
    assert decoded.flags == {ImageFlag.BROKEN_METADATA}


def test_broken_metadata_of_a_truncated_image_do_not_hide_the_truncation(encode_image: Encode, noise: Noise) -> None:
    # Pillow loads a PNG while it looks for EXIF: the error of the pixels must not pass for one of the metadata.
    data = encode_image(noise((60, 40)), "PNG")
    with pytest.raises(UnreadableImageError) as raised:
        decode(data[: len(data) // 2])
    assert raised.value.reason is Unreadable.TRUNCATED


# 10. decompression bombs


@pytest.mark.parametrize(
    "side",
    [
        pytest.param(14_000, id="196 million pixels, refused by Pillow"),
        pytest.param(10_000, id="100 million pixels, a warning in Pillow"),
    ],
)
def test_a_decompression_bomb_is_too_large_and_the_message_names_the_limit(side: int) -> None:
    with pytest.raises(UnreadableImageError) as raised:
        decode(png(side, side, depth=1, color=0))
    assert raised.value.reason is Unreadable.TOO_LARGE
    assert f"{MAX_PIXELS:,}" in str(raised.value)


def test_the_limit_can_be_lowered(encode_image: Encode, noise: Noise) -> None:
    data = encode_image(noise((40, 30)), "PNG")
    assert decode(data, max_pixels=1200).image.size == (40, 30)
    with pytest.raises(UnreadableImageError, match="40 x 30 pixels, the limit is 1,199"):
        decode(data, max_pixels=1199)


@pytest.mark.filterwarnings("error")
def test_a_large_image_under_the_limit_raises_no_warning(
    encode_image: Encode, noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pillow warns above its threshold and fails at twice the threshold: 1200 pixels lie between 1000 and 2000.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert decode(encode_image(noise((40, 30)), "PNG")).image.size == (40, 30)


# 11. thin images


@pytest.mark.parametrize(
    ("size", "padded"),
    [((1, 100), (28, 100)), ((100, 1), (100, 28)), ((100, 3), (100, 28)), ((1, 1), (28, 28)), ((27, 28), (28, 28))],
)
def test_a_thin_image_is_padded_to_the_minimum_side(
    encode_image: Encode, size: tuple[int, int], padded: tuple[int, int]
) -> None:
    decoded = decode(encode_image(Image.new("RGB", size), "PNG"))
    assert decoded.image.size == padded
    assert decoded.flags == {ImageFlag.PADDED}
    # Every black pixel is still there, the rest is white.
    black_pixels = size[0] * size[1]
    white_pixels = padded[0] * padded[1] - black_pixels
    assert sorted(decoded.image.getcolors()) == sorted([(black_pixels, (0, 0, 0)), (white_pixels, (255, 255, 255))])


def test_a_three_pixel_high_image_is_centered(encode_image: Encode) -> None:
    decoded = decode(encode_image(Image.new("RGB", (100, 3)), "PNG"))
    # (28 - 3) // 2 = 12 rows of white, then rows 12, 13 and 14.
    rows = [y for y in range(28) if decoded.image.getpixel((50, y)) == (0, 0, 0)]
    assert rows == [12, 13, 14]


# 12. digests


def test_black_images_of_equal_byte_count_have_distinct_digests() -> None:
    # 100 * 50 * 3 = 50 * 100 * 3 = 300 * 50 * 1 = 15,000 zero bytes each.
    images = [black((100, 50)), black((50, 100)), Image.new("L", (300, 50))]
    assert {image.tobytes() for image in images} == {bytes(15_000)}
    assert len({digest(image) for image in images}) == 3


# 13. original bytes


def test_original_bytes_survive_saving_and_loading(
    toy_benchmark: Callable[..., Benchmark], encode_image: Encode, noise: Noise, tmp_path: Path
) -> None:
    animation = encode_image(noise((40, 40)), "GIF", save_all=True, append_images=[noise((40, 40), 1)])
    images = {
        "a": encode_image(noise((40, 40)), "JPEG", quality=60, exif=orientation_exif(6)),
        "b": encode_image(Image.new("RGBA", (40, 40), (255, 0, 0, 0)), "PNG"),
        "c": encode_image(Image.new("CMYK", (40, 40)), "JPEG"),
        "d": animation,
        "outside": encode_image(noise((5, 40)), "PNG") + b"trailing bytes",
    }
    save_benchmark(toy_benchmark(images=images), tmp_path)
    assert dict(load_benchmark(tmp_path).gallery.images or {}) == images


def test_flags_survive_saving_and_loading(
    toy_benchmark: Callable[..., Benchmark], encode_image: Encode, noise: Noise, tmp_path: Path
) -> None:
    images = {name: encode_image(noise((40, 40), seed), "PNG") for seed, name in enumerate(("a", "b", "c", "d"))}
    images["outside"] = encode_image(Image.new("RGBA", (5, 40)), "PNG", exif=orientation_exif(3))
    save_benchmark(toy_benchmark(images=images), tmp_path)
    flags = load_benchmark(tmp_path).inspect().readable["outside"].flags
    assert flags == {ImageFlag.ALPHA, ImageFlag.PADDED, ImageFlag.ROTATED}


def _xmp_options(image_format: str, xmp: bytes) -> dict[str, object]:
    if image_format != "PNG":
        return {"xmp": xmp}
    info = PngImagePlugin.PngInfo()
    info.add(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp)
    return {"pnginfo": info}
