"""Build circus-bench with setuptools, and add the start-up files that tell mteb about it to each wheel.

This PEP 517 backend lets setuptools build the wheel, editable or not, and then adds three files to its root: a `.pth`
file that Python runs when it starts, the same as a `.start` file for Python 3.15 and later (PEP 829), and the module
that both of them call. They are in the wheel's RECORD, so that an uninstall removes them.

setuptools has no way of its own: `data_files` go to the prefix and not to site-packages, `py_modules` hold no `.pth`,
and what a `build_py` of ours would write is left out of an editable wheel. Neither `zipfile` nor setuptools can replace
an entry of an archive, hence the copy.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import zipfile
from pathlib import Path
from typing import Any

from setuptools import build_meta  # type: ignore[import-untyped]
from setuptools.build_meta import *  # type: ignore[import-untyped]  # noqa: F403 - all hooks; two are replaced below

_HOOK = Path(__file__).with_name("circus_bench_mteb_hook.py")


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build a wheel, start-up files included; returns its file name."""
    return _with_start_up_files(
        wheel_directory, build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    )


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build the wheel of an editable install, start-up files included; returns its file name."""
    return _with_start_up_files(
        wheel_directory, build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    )


def _with_start_up_files(folder: str, name: str) -> str:
    """Add the start-up files to the root of a wheel, and their lines to its RECORD."""
    module = _HOOK.stem
    added = {
        "circus_bench_mteb.pth": f"import {module}; {module}.install()\n".encode(),
        "circus_bench_mteb.start": f"{module}:install\n".encode(),
        _HOOK.name: _HOOK.read_bytes(),
    }
    wheel = Path(folder, name)
    mended = wheel.with_name(f"{name}.part")
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(mended, "w", zipfile.ZIP_DEFLATED) as target:
        for path, content in added.items():
            entry = zipfile.ZipInfo(path)  # of 1980, in every build
            entry.external_attr = 0o100644 << 16
            target.writestr(entry, content, zipfile.ZIP_DEFLATED)
        for entry in source.infolist():
            content = source.read(entry)
            if entry.filename.endswith(".dist-info/RECORD"):
                content = "".join(_record(*file) for file in added.items()).encode() + content
            target.writestr(entry, content, zipfile.ZIP_DEFLATED)
    shutil.move(mended, wheel)
    return name


def _record(path: str, content: bytes) -> str:
    """Return a line of RECORD: the path, the unpadded URL-safe SHA-256, the size (binary distribution format)."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}\n"
