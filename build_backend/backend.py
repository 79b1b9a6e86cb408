"""Builds circus-bench with setuptools, and adds the start-up files that tell mteb about it to each wheel.

setuptools cannot install files beside the packages. This PEP 517 backend lets it build the wheel, editable or not, and
then adds three files to its root: a `.pth` file that Python runs when it starts, the same as a `.start` file for Python
3.15 and later (PEP 829), and the module that both of them call. They are in the wheel's RECORD, so that an uninstall
removes them.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import zipfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

_HOOK = Path(__file__).with_name("circus_bench_mteb_hook.py")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same date in every build


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build a wheel, start-up files included; returns its file name."""
    name: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    add_start_up_files(Path(wheel_directory, name))
    return name


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build the wheel of an editable install, start-up files included; returns its file name."""
    name: str = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    add_start_up_files(Path(wheel_directory, name))
    return name


def start_up_files() -> dict[str, bytes]:
    """The files that go to the root of a wheel."""
    module = _HOOK.stem
    return {
        "circus_bench_mteb.pth": f"import {module}; {module}.install()\n".encode(),
        "circus_bench_mteb.start": f"{module}:install\n".encode(),
        _HOOK.name: _HOOK.read_bytes(),
    }


def add_start_up_files(wheel: Path) -> None:
    """Add the start-up files to a wheel, and their lines to its RECORD."""
    added = start_up_files()
    mended = wheel.with_name(wheel.name + ".part")
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(mended, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in added.items():
            _write(target, name, content)
        for entry in source.infolist():
            content = source.read(entry)
            if entry.filename.endswith(".dist-info/RECORD"):
                content = "".join(_record(*file) for file in added.items()).encode() + content
            target.writestr(entry, content, zipfile.ZIP_DEFLATED)
    shutil.move(mended, wheel)


def _write(target: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.external_attr = 0o100644 << 16
    target.writestr(entry, content, zipfile.ZIP_DEFLATED)


def _record(name: str, content: bytes) -> str:
    """A line of RECORD: the path, the unpadded URL-safe SHA-256, the size (binary distribution format)."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"
