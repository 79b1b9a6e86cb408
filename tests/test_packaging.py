"""The installed package holds what the repository holds."""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import importlib
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
START_UP = ("circus_bench_mteb.pth", "circus_bench_mteb.start", "circus_bench_mteb_hook.py")


def setup_cfg() -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config


def test_setup_cfg_lists_every_package() -> None:
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "circus_bench").rglob("__init__.py")}
    mapped = {"circus_bench.cards", "circus_bench.dataset_scripts", "circus_bench.tasks"}
    assert {*setup_cfg()["options"]["packages"].split()} == found | mapped


@pytest.mark.parametrize("name", ["cards", "dataset_scripts", "tasks"])
def test_a_top_level_folder_is_installed_inside_the_package(name: str) -> None:
    module = importlib.import_module(f"circus_bench.{name}")
    assert module.__doc__
    assert f"circus_bench.{name}" in module.__doc__


def test_every_file_that_is_not_python_is_package_data() -> None:
    patterns = setup_cfg()["options.package_data"]["circus_bench"].split()
    others = [
        path
        for path in (ROOT / "circus_bench").rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"} and "__pycache__" not in path.parts
    ]
    covered = {path for pattern in patterns for path in (ROOT / "circus_bench").glob(pattern)}
    assert [path.name for path in others if path not in covered] == []


def test_the_public_names_are_importable() -> None:
    import circus_bench

    for name in circus_bench.__all__:
        assert getattr(circus_bench, name) is not None


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    import circus_bench

    with pytest.raises(AttributeError, match="nonsense"):
        circus_bench.nonsense  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, circus_bench; print(sorted({'numpy', 'torch', 'mteb', 'pyarrow', 'PIL'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what an installation reads: building writes next to its sources."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("build_backend", "cards", "circus_bench", "dataset_scripts", "tasks"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.cfg"):
        shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="module")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel, the wheel of an editable install, and the sdist, built as pip does it but without its isolation."""
    out = tmp_path_factory.mktemp("built")
    code = (
        "import sys; sys.path.insert(0, 'build_backend')\n"
        "import backend\n"
        "out = sys.argv[1]  # setuptools changes sys.argv\n"
        "for kind in ('wheel', 'editable', 'sdist'):\n"
        "    getattr(backend, 'build_' + kind)(out + '/' + kind)"
    )
    for kind in ("wheel", "editable", "sdist"):
        (out / kind).mkdir()
    subprocess.run([sys.executable, "-c", code, str(out)], cwd=source, capture_output=True, text=True, check=True)
    return {kind: next((out / kind).iterdir()) for kind in ("wheel", "editable", "sdist")}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter of its own, with nothing installed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python"


def pip(python: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*command, *arguments], check=True, capture_output=True, text=True)


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_a_wheel_holds_the_start_up_files_at_its_root(built: dict[str, Path], kind: str) -> None:
    with zipfile.ZipFile(built[kind]) as wheel:
        assert {*START_UP} <= {*wheel.namelist()}
        assert wheel.read("circus_bench_mteb.pth").count(b"\n") == 1  # one line is all that Python is to run


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_the_record_of_a_wheel_names_every_file_with_its_digest_and_size(built: dict[str, Path], kind: str) -> None:
    with zipfile.ZipFile(built[kind]) as wheel:
        record = next(name for name in wheel.namelist() if name.endswith(".dist-info/RECORD"))
        rows = {name: (digest, size) for name, digest, size in csv.reader(wheel.read(record).decode().splitlines())}
        assert rows.pop(record) == ("", "")
        contents = {name: wheel.read(name) for name in wheel.namelist() if name != record and not name.endswith("/")}
    assert rows == {
        name: (
            "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode(),
            str(len(content)),
        )
        for name, content in contents.items()
    }


def test_the_wheel_holds_the_data_files(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        assert {"circus_bench/models/pool.toml", "circus_bench/tasks/registry.py"} <= {*wheel.namelist()}


def test_the_sdist_can_be_built_from(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"build_backend/backend.py", "build_backend/circus_bench_mteb_hook.py", "pyproject.toml"} <= names


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_an_installation_starts_the_hook_and_an_uninstall_removes_it(
    built: dict[str, Path], python: Path, kind: str
) -> None:
    code = "import sys; print('circus_bench_mteb_hook' in sys.modules, 'circus_bench' in sys.modules)"

    def started() -> str:
        return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()

    pip(python, "install", "--no-deps", "--no-index", str(built[kind]))
    assert started() == "True False"
    pip(python, "uninstall", "--yes", "circus-bench")
    assert started() == "False False"
    assert list(python.parent.parent.rglob("*circus*")) == []
