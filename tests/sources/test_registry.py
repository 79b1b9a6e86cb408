"""The registry of sources: by protocol id, lazily, with images by the source's own rule."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from circus_bench.benchmark import Benchmark, Defect, Gallery, Protocol, Query, ReferencePolicy
from circus_bench.errors import BenchmarkError, ImageError
from circus_bench.hub.loading import load_benchmark
from circus_bench.hub.writer import save_benchmark
from circus_bench.sources import PROTOCOLS, join_images, load_source

RULES = {
    # protocol: a file of its image, the image's id, and a file that holds none
    "cirr/official": ("dev/x/dev-1-0-img0.png", "dev-1-0-img0", "dev/x/dev-1-0.png"),
    "fashioniq/original+first": ("all/B0084Y8XIU.jpg", "B0084Y8XIU", "all/logo.png"),
    "circo/val": ("unlabeled2017/000000000008.jpg", "8", "unlabeled2017/map.jpg"),
    "lasco/val": ("val2014/COCO_val2014_000000000042.jpg", "42", "val2014/000000000042.jpg"),
    "mbeir/toy": ("mbeir_images/toy/a.png", "mbeir_images/toy/a.png", "toy/a.png"),
    "rmir/test": ("pool/p1.jpg", "p1", "pool/notes.txt"),
    "rmir/train": ("pool/p1.jpg", "p1", "pool/notes.txt"),
    "dataset/mine": ("pictures/a.webp", "a", "pictures/a.gif"),
    "scenes/test": ("scene-00001.png", "scene-00001", "notes.txt"),
    "unheard/of": ("a.png", "a", "a.txt"),
}


def annotations(protocol: str, image: str, *, allow: frozenset[Defect] = frozenset()) -> Benchmark:
    """A benchmark of one image that is both gallery and reference; its hidden target keeps it sound."""
    return Benchmark(
        name="one",
        protocol=Protocol(protocol, ReferencePolicy.KEPT, hidden_targets=True),
        queries=(Query("q", image, "is red", ()),),
        gallery=Gallery((image,)),
        allow=allow,
    )


def test_an_unknown_protocol_is_an_error_that_lists_the_known_ones(tmp_path):
    with pytest.raises(BenchmarkError, match=r"unknown protocol 'cirr/val'; known: cirr/official, .*scenes/test"):
        load_source("cirr/val", tmp_path)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_known_id_has_a_protocol_as_data(protocol):
    source = protocol.split("/")[0]
    module = importlib.import_module(f"circus_bench.sources.{source}")
    if source == "scenes":
        assert load_source(protocol, queries=40, gallery=400).protocol.id == protocol
    else:
        assert module.PROTOCOLS[protocol].id == protocol


@pytest.mark.parametrize("protocol", [p for p in PROTOCOLS if p not in {"mbeir", "dataset", "scenes/test"}])
def test_protocols_say_what_gallery_positives_and_captions_are(protocol):
    data = importlib.import_module(f"circus_bench.sources.{protocol.split('/')[0]}").PROTOCOLS[protocol]
    assert data.gallery
    assert data.positives
    assert data.captions
    assert data.hidden_targets == (protocol in {"cirr/test1", "circo/test"})


@pytest.mark.parametrize("protocol", ["cirr/official", "cirr/mbeir", "circo/val"])
def test_cirr_and_circo_have_the_instruction_of_the_paper(protocol):
    # circus-paper.md, section 4.
    data = importlib.import_module(f"circus_bench.sources.{protocol.split('/')[0]}").PROTOCOLS[protocol]
    assert data.instruction == (
        "Retrieve a day-to-day image that aligns with the modification instructions of the provided image."
    )


def test_fashioniq_has_the_instruction_of_the_paper_and_lasco_none():
    from circus_bench.sources import fashioniq, lasco

    assert fashioniq.PROTOCOLS["fashioniq/circus"].instruction == (
        "Find a fashion image that aligns with the reference image and style note."
    )
    assert lasco.PROTOCOLS["lasco/val"].instruction == ""


def test_an_unknown_option_is_an_error_that_lists_the_known_ones(tmp_path):
    with pytest.raises(BenchmarkError, match="fashioniq/mbeir has no option kategory; its options: allow, category"):
        load_source("fashioniq/mbeir", tmp_path, kategory="dress")


def test_a_missing_option_is_an_error(tmp_path):
    with pytest.raises(BenchmarkError, match="mbeir needs the option name; its options: name, split"):
        load_source("mbeir", tmp_path)


def test_a_generated_benchmark_takes_no_folder(tmp_path):
    with pytest.raises(BenchmarkError, match="scenes/test is generated"):
        load_source("scenes/test", tmp_path)


@pytest.mark.parametrize("protocol", RULES)
def test_images_are_joined_by_the_rule_of_the_protocol(tmp_path, protocol):
    file, image, stranger = RULES[protocol]
    for name in (file, stranger):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    joined = join_images(annotations(protocol, image), tmp_path)
    assert dict(joined.gallery.images) == {image: file.encode()}


def test_a_benchmark_saved_without_images_is_joined_after_loading(tmp_path):
    save_benchmark(annotations("circo/val", "8"), tmp_path / "saved")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "000000000008.jpg").write_bytes(b"x")
    joined = join_images(load_benchmark(tmp_path / "saved"), tmp_path / "images")
    assert joined.gallery.images["8"] == b"x"


def test_missing_images_are_named_when_joined(tmp_path):
    with pytest.raises(BenchmarkError, match=r"gallery or reference images have no bytes \(1: '8'\)"):
        join_images(annotations("circo/val", "8"), tmp_path)
    allowed = annotations("circo/val", "8", allow=frozenset({Defect.MISSING_IMAGE}))
    assert join_images(allowed, tmp_path).findings[0].ids == ("8",)


def test_a_missing_folder_of_images_is_named(tmp_path):
    with pytest.raises(ImageError, match="gone: no such folder of images"):
        join_images(annotations("circo/val", "8"), tmp_path / "gone")


def test_two_files_of_one_image_are_named(tmp_path):
    for name in ("000000000008.jpg", "more/000000000008.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(ImageError, match=r"more.000000000008\.jpg.* share the id '8'|share the id '8'"):
        join_images(annotations("circo/val", "8"), tmp_path)


def test_images_given_as_a_mapping_are_taken_as_they_are(tmp_path):
    (tmp_path / "test.jsonl").write_text(
        '{"id": "r", "image": "a", "text": "Why?", "positives": ["b"], "category": "causal"}\n'
    )
    (tmp_path / "pool.txt").write_text("b\n")
    benchmark = load_source("rmir/test", tmp_path, images={"a": b"1", "b": b"2"})
    assert benchmark.gallery.images == {"a": b"1", "b": b"2"}


def test_the_registry_imports_no_source_and_nothing_heavy():
    code = (
        "import sys, circus_bench.sources as s; s.PROTOCOLS; "
        "print([m for m in sys.modules if m in ('datasets', 'pyarrow', 'numpy', 'torch')"
        " or m.startswith('circus_bench.sources.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stdout.strip() == "[]"
