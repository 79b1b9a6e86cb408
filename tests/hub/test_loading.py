"""Loading benchmarks by name: protocol ids, dataset folders and their configurations, repositories on the Hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.loopback_hub import Blob, LoopbackHub, Repository
from support.old_form import save_old_form
from support.parts import IN_SUBSET, made_benchmark, made_labels, made_part, png

import circus_bench
from circus_bench.benchmark import Benchmark, Defect
from circus_bench.errors import BenchmarkError, CircusError, FormatError, ImageError, MismatchError
from circus_bench.hub.loading import (
    BenchmarkName,
    load_benchmark,
    load_labeled_benchmark,
    load_labeled_benchmarks,
)
from circus_bench.hub.writer import save_benchmark, write_dataset_folder
from circus_bench.labels.labels import Subset
from circus_bench.sources.scenes import scenes

Toy = Callable[..., Benchmark]


@pytest.fixture(scope="module")
def circus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset folder of `made_part`, with images."""
    out = tmp_path_factory.mktemp("one") / "circus"
    write_dataset_folder([made_part()], out)
    return out


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset folder of two benchmarks without images, the second without labels."""
    out = tmp_path_factory.mktemp("two") / "circus"
    write_dataset_folder([made_part(images=False)], out)
    save_benchmark(made_benchmark(name="other", images=False), out)
    return out


class TestNames:
    @pytest.mark.parametrize(
        ("text", "place", "config"),
        [
            ("cirr/circus", "cirr/circus", ""),
            ("cirr/circus#cirr_sf", "cirr/circus", "cirr_sf"),
            ("some/folder", "some/folder", ""),
            ("some/folder#made_v", "some/folder", "made_v"),
            ("ORG/circus@v1#cirr_v", "ORG/circus@v1", "cirr_v"),
            ("C#/circus#made", "C#/circus", "made"),
        ],
    )
    def test_a_name_is_taken_apart_and_put_together(self, text: str, place: str, config: str) -> None:
        named = BenchmarkName.parse(text)
        assert (named.place, named.config) == (place, config)
        assert str(named) == text
        assert BenchmarkName.parse(Path(text)) == named

    @pytest.mark.parametrize(
        ("text", "pinned"),
        [
            ("group/circus@v1", True),
            ("group/circus@refs/pr/1#made", True),
            ("group/circus", False),
            ("cirr/circus", False),
            ("folder", False),
        ],
    )
    def test_a_repository_at_a_revision_is_pinned(self, text: str, pinned: bool) -> None:
        assert BenchmarkName.parse(text).is_pinned is pinned

    def test_a_folder_named_like_a_repository_is_a_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save_benchmark(made_benchmark(images=False), tmp_path / "group" / "circus@v1")
        monkeypatch.chdir(tmp_path)
        assert not BenchmarkName.parse("group/circus@v1").is_pinned
        assert load_benchmark("group/circus@v1").name == "made"

    def test_the_images_of_a_folder_are_known_from_its_manifest(self, circus: Path, two: Path, tmp_path: Path) -> None:
        assert BenchmarkName.parse(f"{circus}#made_v").has_images
        assert not BenchmarkName.parse(two).has_images
        assert not BenchmarkName.parse("cirr/circus").has_images
        for images in (True, False):
            save_old_form(made_benchmark(images=images), tmp_path / str(images))
            assert BenchmarkName.parse(tmp_path / str(images)).has_images is images

    def test_the_function_is_that_of_the_package(self) -> None:
        assert circus_bench.load_benchmark is load_benchmark


class TestFolders:
    @pytest.mark.parametrize("kind", [str, Path])
    def test_a_folder_of_one_benchmark_is_that_benchmark(self, circus: Path, kind: Callable[[Path], Any]) -> None:
        loaded = load_benchmark(kind(circus))
        assert loaded == made_benchmark()
        assert loaded.fingerprint == made_benchmark().fingerprint
        assert dict(loaded.gallery.images or {}) == made_benchmark().gallery.images

    def test_its_labels_come_with_it(self, circus: Path) -> None:
        assert load_labeled_benchmark(circus) == made_part()

    def test_a_folder_of_several_benchmarks_lists_them(self, two: Path) -> None:
        with pytest.raises(CircusError, match=f"holds 2 benchmarks; name one of them: {two}#made, {two}#other"):
            load_benchmark(two)
        assert [part.name for part in load_labeled_benchmarks(two)] == ["made", "other"]

    def test_one_of_several_is_named_after_the_folder(self, two: Path) -> None:
        assert load_benchmark(f"{two}#other").name == "other"
        assert load_labeled_benchmark(f"{two}#other").labels is None
        assert load_labeled_benchmark(f"{two}#made").labels == made_labels(made_benchmark())

    @pytest.mark.parametrize("config", ["made_x", "nothing", "made-corpus", "made_full-corpus"])
    def test_what_may_be_named_is_listed(self, two: Path, config: str) -> None:
        known = "made, made_full, made_sf, made_v, other, other_full, other_sf, other_v"
        with pytest.raises(CircusError, match=f"no benchmark or subset '{config}'; those there may be: {known}"):
            load_benchmark(f"{two}#{config}")

    def test_a_folder_with_a_number_sign_in_its_name(self, tmp_path: Path) -> None:
        write_dataset_folder([made_part(images=False)], tmp_path / "take #2")
        assert load_benchmark(tmp_path / "take #2").name == "made"
        assert len(load_benchmark(f"{tmp_path / 'take #2'}#made_v").queries) == 2

    def test_a_benchmark_whose_name_looks_like_a_subset_comes_first(self, tmp_path: Path) -> None:
        write_dataset_folder([made_part(images=False), made_part(name="made_v", images=False)], tmp_path / "circus")
        assert len(load_benchmark(f"{tmp_path / 'circus'}#made_v").queries) == 4

    def test_a_benchmark_whose_name_is_no_folder_name_is_named_by_its_slug(self, tmp_path: Path) -> None:
        save_benchmark(made_benchmark(name="my own/made", images=False), tmp_path / "circus")
        assert load_benchmark(f"{tmp_path / 'circus'}#my-own__made").name == "my own/made"

    def test_a_folder_of_something_else_says_how_to_make_one(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match=r"no dataset folder \(manifest\.json is missing\).* data make"):
            load_benchmark(tmp_path)

    def test_a_folder_with_a_manifest_of_something_else_says_how_to_make_one(self, tmp_path: Path) -> None:
        (tmp_path / "manifest.json").write_text('{"schema_version": 1, "model": "tests/a"}')
        with pytest.raises(FormatError, match=r"manifest\.json: names no benchmarks.*circus-bench data make"):
            load_benchmark(tmp_path)

    def test_the_old_form_warns_once_in_one_line(self, toy_benchmark: Toy, tmp_path: Path) -> None:
        save_old_form(toy_benchmark(), tmp_path)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert load_benchmark(tmp_path) == toy_benchmark()
        assert [warning.category for warning in caught] == [FutureWarning]
        assert "\n" not in str(caught[0].message)

    def test_the_folder_called_like_a_protocol_comes_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save_benchmark(made_benchmark(images=False), tmp_path / "scenes" / "test")
        monkeypatch.chdir(tmp_path)
        assert load_benchmark("scenes/test").name == "made"
        (tmp_path / "scenes" / "test" / "manifest.json").unlink()  # a folder of something else does not
        assert load_benchmark("scenes/test", queries=40, gallery=300).name == "scenes"


class TestSubsets:
    @pytest.mark.parametrize("subset", Subset)
    def test_a_subset_has_its_queries_and_the_whole_gallery(self, circus: Path, subset: Subset) -> None:
        part = load_benchmark(f"{circus}#made_{subset}")
        assert [query.id for query in part.queries] == IN_SUBSET[subset]
        assert part.gallery.ids == made_benchmark().gallery.ids
        assert part.gallery.images is not None
        assert part.gallery.images["g4"] == png(4)

    def test_it_has_a_fingerprint_of_its_own(self, circus: Path) -> None:
        prints = [load_benchmark(f"{circus}#made{rest}").fingerprint for rest in ("", "_full", "_sf", "_v")]
        assert prints[0] == prints[1] == made_benchmark().fingerprint
        assert len({of.annotations for of in prints}) == 3
        assert not prints[2].matches(prints[0])

    def test_it_says_which_it_is(self, circus: Path) -> None:
        assert load_benchmark(f"{circus}#made_sf").source == {**made_benchmark().source, "subset": "sf"}

    def test_it_has_the_labels_of_its_queries(self, circus: Path) -> None:
        part = load_labeled_benchmark(f"{circus}#made_v")
        assert part.labels is not None
        whole = made_labels(made_benchmark())
        assert part.label_of == {name: whole.by_query[name] for name in ("q1", "q3")}
        assert part.labels.provenance.fingerprint == part.benchmark.annotations_only().fingerprint
        assert {subset: len(queries) for subset, queries in part.subsets.items()} == {"full": 2, "sf": 2, "v": 2}

    def test_it_can_be_written_and_loaded(self, circus: Path, tmp_path: Path) -> None:
        part = load_labeled_benchmark(f"{circus}#made_sf")
        write_dataset_folder([part], tmp_path / "sf")
        again = load_labeled_benchmark(tmp_path / "sf")
        assert again.benchmark.fingerprint == part.benchmark.fingerprint
        assert again.label_of == part.label_of
        assert [query.id for query in load_benchmark(f"{tmp_path / 'sf'}#made_v").queries] == IN_SUBSET[Subset.V]

    @pytest.mark.parametrize("subset", ["sf", "v"])
    def test_it_needs_labels(self, two: Path, subset: str) -> None:
        with pytest.raises(CircusError, match=f"other: the subset '{subset}' needs labels or human judgments"):
            load_benchmark(f"{two}#other_{subset}")

    def test_a_finding_about_queries_that_are_gone_is_gone_too(self, tmp_path: Path) -> None:
        queries = tuple(
            query if query.id != "q0" else type(query)("q0", "g0", "", ("g1",)) for query in made_benchmark().queries
        )
        write_dataset_folder([made_part(queries=queries, allow=frozenset({Defect.EMPTY_TEXT}))], tmp_path / "circus")
        assert [finding.ids for finding in load_benchmark(tmp_path / "circus").findings] == [("q0",)]
        assert load_benchmark(f"{tmp_path / 'circus'}#made_v").findings == ()


class TestProtocols:
    def test_a_generated_benchmark_takes_options(self) -> None:
        made = load_benchmark("scenes/test", seed=3, queries=30, gallery=200)
        assert made.fingerprint == scenes(seed=3, queries=30, gallery=200).fingerprint

    def test_a_generated_benchmark_has_no_defects_to_allow(self) -> None:
        assert load_benchmark("scenes/test", queries=30, gallery=200, allow=["empty_text"]).findings == ()

    @pytest.mark.parametrize("kind", [str, Path])
    def test_the_annotations_lie_in_the_folder_of_the_source(self, shared: Path, kind: Callable[[Path], Any]) -> None:
        # 220 validation queries (CIRCO), of which 53 + 3 are shortcut-free and 42 of these valid.
        data = kind(shared / "data")
        assert len(load_benchmark("circo/val", data=data).queries) == 220
        assert len(load_benchmark("circo/val#circo_sf", data=data).queries) == 56
        assert len(load_benchmark("circo/val#circo_v", data=data).queries) == 42

    def test_a_protocol_without_published_labels_has_no_subsets(self, shared: Path) -> None:
        assert load_labeled_benchmark("cirr/official", data=shared / "data").labels is None
        with pytest.raises(CircusError, match="cirr: the subset 'sf' needs labels"):
            load_benchmark("cirr/official#cirr_sf", data=shared / "data")

    def test_a_protocol_that_was_saved_is_the_same_benchmark(self, shared: Path, tmp_path: Path) -> None:
        part = load_labeled_benchmark("circo/val", data=shared / "data")
        write_dataset_folder([part], tmp_path / "circus")
        for config in ("", "#circo_sf", "#circo_v"):
            named = load_labeled_benchmark(f"circo/val{config}", data=shared / "data")
            saved = load_labeled_benchmark(f"{tmp_path / 'circus'}{config}")
            assert saved.benchmark == named.benchmark
            assert saved.benchmark.fingerprint == named.benchmark.fingerprint
            assert saved.label_of == named.label_of

    def test_fashioniq_original_is_three_benchmarks(self, shared: Path) -> None:
        parts = load_labeled_benchmarks("fashioniq/original", data=shared / "data")
        # protocols.md, section 1.
        assert {part.name: len(part.benchmark.queries) for part in parts} == {
            "fashioniq-dress": 2017,
            "fashioniq-shirt": 2038,
            "fashioniq-toptee": 1961,
        }
        with pytest.raises(CircusError, match="name one of them: fashioniq/original#fashioniq-dress, "):
            load_benchmark("fashioniq/original", data=shared / "data")

    def test_one_of_them_is_named_or_asked_for_by_category(self, shared: Path) -> None:
        named = load_benchmark("fashioniq/original#fashioniq-dress", data=shared / "data")
        assert named == load_benchmark("fashioniq/original", data=shared / "data", category="dress")
        with pytest.raises(CircusError, match="those there may be: fashioniq-dress, fashioniq-dress_full"):
            load_benchmark("fashioniq/original#dress", data=shared / "data")

    @pytest.mark.parametrize(("protocol", "where"), [("cirr/circus", "folder 'cirr'"), ("dataset", "where it lies")])
    def test_a_missing_data_folder_is_asked_for(self, protocol: str, where: str) -> None:
        with pytest.raises(CircusError, match=rf"{protocol}: --data is missing; say .*{where}"):
            load_benchmark(protocol)

    def test_an_option_may_be_called_name(self, tmp_path: Path) -> None:
        (tmp_path / "triplets.csv").write_text("ref,caption,goal\na,brighter,b\n")
        columns = {"reference": "ref", "text": "caption", "targets": "goal"}
        made = load_benchmark("dataset", data=tmp_path / "triplets.csv", name="mine", columns=columns)
        assert (made.name, made.queries[0].targets) == ("mine", ("b",))

    def test_an_unknown_option_lists_the_known_ones(self, tmp_path: Path) -> None:
        with pytest.raises(BenchmarkError, match="has no option kategory; its options: allow, category"):
            load_benchmark("fashioniq/mbeir", data=tmp_path, kategory="dress")

    @pytest.mark.parametrize("option", ["category", "name"])
    def test_a_folder_takes_no_options(self, circus: Path, option: str) -> None:
        with pytest.raises(CircusError, match=rf"it takes no options \({option}\)"):
            load_benchmark(circus, **{option: "dress"})


class TestUnknownNames:
    @pytest.mark.parametrize(
        ("typo", "close"),
        [
            ("cirr/circu", "cirr/official, cirr/mbeir, cirr/circus, cirr/test1"),
            ("fashioniq/orginal", "fashioniq/original, fashioniq/mbeir"),
            ("circoval", "circo/val"),
            ("scene/test", "scenes/test"),
        ],
    )
    def test_a_typo_is_answered_with_close_names(self, typo: str, close: str) -> None:
        with pytest.raises(CircusError, match=rf"{typo}: neither a dataset folder nor a protocol \(close: .*{close}"):
            load_benchmark(typo)

    def test_a_folder_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(CircusError, match="gone: neither a dataset folder nor a protocol"):
            load_benchmark(tmp_path / "gone")

    def test_a_repository_that_cannot_be_had_says_so(self) -> None:
        # The test process is offline.
        with pytest.raises(CircusError, match=r"^the dataset repository group/circus at v1 cannot be had .*data make"):
            load_benchmark("group/circus@v1")
        with pytest.raises(CircusError, match=r"neither a dataset folder nor a protocol .*group/circus cannot be had"):
            load_benchmark("group/circus")


class TestDefects:
    def test_defects_may_be_written_as_text(self, two: Path) -> None:
        held = {name: data for name, data in (made_benchmark().gallery.images or {}).items() if name != "g3"}
        for allow in (["missing_image"], {Defect.MISSING_IMAGE}, ("missing_image", Defect.EMPTY_TEXT)):
            loaded = load_benchmark(f"{two}#made", images=held, allow=allow)
            assert [finding.ids for finding in loaded.findings] == [("g3",)]

    @pytest.mark.parametrize("name", ["scenes/test", "nowhere"])
    def test_an_unknown_defect_lists_the_known_ones(self, name: str) -> None:
        with pytest.raises(CircusError, match="no defects untidy; those that can be allowed: non_string_id, "):
            load_benchmark(name, allow=["untidy"])


class TestImages:
    @pytest.fixture
    def files(self, tmp_path: Path) -> Path:
        """The images of `made_benchmark`, at different depths."""
        for name, data in (made_benchmark().gallery.images or {}).items():
            path = tmp_path / "files" / ("deep/er" if name == "g2" else ".") / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return tmp_path / "files"

    @pytest.fixture(scope="class")
    def bare(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A dataset folder without images, but with what was found about them."""
        out = tmp_path_factory.mktemp("bare") / "circus"
        write_dataset_folder([made_part()], out, with_images=False)
        return out

    @pytest.mark.parametrize("kind", [str, Path])
    def test_the_right_pixels_come_to_the_right_ids(self, bare: Path, files: Path, kind: Callable[[Path], Any]) -> None:
        loaded = load_benchmark(bare, images=kind(files))
        assert dict(loaded.gallery.images or {}) == made_benchmark().gallery.images
        assert loaded.fingerprint == made_benchmark().fingerprint

    def test_a_subset_is_joined_as_well(self, bare: Path, files: Path, circus: Path) -> None:
        joined = load_benchmark(f"{bare}#made_v", images=files)
        assert joined.fingerprint == load_benchmark(f"{circus}#made_v").fingerprint

    def test_images_may_be_a_mapping(self, bare: Path) -> None:
        loaded = load_benchmark(bare, images=made_benchmark().gallery.images)
        assert loaded.fingerprint == made_benchmark().fingerprint

    def test_the_folder_of_the_benchmark_is_taken_where_there_is_one(self, bare: Path, files: Path) -> None:
        (files.parent / "all").mkdir()
        files.rename(files.parent / "all" / "made")
        (files.parent / "all" / "other").mkdir()
        (files.parent / "all" / "other" / "g0.png").write_bytes(b"of another benchmark")
        loaded = load_benchmark(bare, images=files.parent / "all")
        assert loaded.fingerprint == made_benchmark().fingerprint

    @pytest.mark.parametrize("image_id", ["g3", "outside"])
    def test_other_pixels_are_refused_by_name(self, bare: Path, files: Path, image_id: str) -> None:
        (files / f"{image_id}.png").write_bytes(png(99))
        with pytest.raises(MismatchError, match=rf"made: images have other pixels .*\(1: '{image_id}'\)"):
            load_benchmark(bare, images=files)

    @pytest.mark.parametrize("image_id", ["g3", "outside"])
    def test_a_missing_image_is_named(self, bare: Path, files: Path, image_id: str) -> None:
        (files / f"{image_id}.png").unlink()
        with pytest.raises(BenchmarkError, match=rf"images have no bytes \(1: '{image_id}'\)"):
            load_benchmark(bare, images=files)

    def test_a_missing_folder_is_named(self, bare: Path, tmp_path: Path) -> None:
        with pytest.raises(ImageError, match="gone: no such folder of images"):
            load_benchmark(bare, images=tmp_path / "gone")

    def test_images_of_a_folder_that_has_some_can_be_replaced_by_the_same(self, circus: Path, files: Path) -> None:
        loaded = load_benchmark(circus, images=files)
        assert loaded.fingerprint == made_benchmark().fingerprint

    def test_images_are_joined_to_a_protocol_by_the_rule_of_its_source(self, tmp_path: Path) -> None:
        annotations = tmp_path / "data" / "rmir"
        annotations.mkdir(parents=True)
        row = {"id": "r", "image": "p1", "text": "Why?", "positives": ["p2"], "category": "causal"}
        (annotations / "test.jsonl").write_text(json.dumps(row) + "\n")
        (annotations / "pool.txt").write_text("p2\n")
        (tmp_path / "images" / "rmir").mkdir(parents=True)
        for seed, name in enumerate(("p1", "p2")):
            (tmp_path / "images" / "rmir" / f"{name}.png").write_bytes(png(seed))
        loaded = load_benchmark("rmir/test", data=tmp_path / "data", images=tmp_path / "images")
        assert dict(loaded.gallery.images or {}) == {"p1": png(0), "p2": png(1)}


_LOAD = """
import json, sys
from circus_bench.errors import CircusError
from circus_bench.hub.loading import load_labeled_benchmarks
found = []
for name in sys.argv[1:]:
    try:
        for part in load_labeled_benchmarks(name):
            of, hashes = part.benchmark, part.benchmark.fingerprint
            found.append([of.name, [query.id for query in of.queries], hashes.annotations, hashes.images])
    except CircusError as error:
        found.append(str(error))
print(json.dumps(found))
"""


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with LoopbackHub().running() as running:
        yield running


@pytest.fixture
def load(hub: LoopbackHub, tmp_path: Path) -> Callable[..., list[Any]]:
    """`load(*names)`: what loading them gives, or says, in a process that knows the loopback Hub."""

    def run(*names: str, **environment: str) -> list[Any]:
        env = {**os.environ, **hub.environment(tmp_path / "home"), **environment}
        done = subprocess.run(
            [sys.executable, "-c", _LOAD, *names], env=env, capture_output=True, text=True, check=True, cwd=tmp_path
        )
        found: list[Any] = json.loads(done.stdout)
        return found

    return run


@pytest.fixture
def repository(hub: LoopbackHub, tmp_path: Path) -> Repository:
    """`group/circus` on the Hub: `made`, with images and labels, and `other`."""
    write_dataset_folder([made_part(), made_part(name="other")], tmp_path / "sent")
    files = {p.relative_to(tmp_path / "sent").as_posix(): p for p in (tmp_path / "sent").rglob("*") if p.is_file()}
    hub.repositories["group/circus"] = held = Repository(private=False)
    held.commit("release", {name: Blob(path.read_bytes()) for name, path in files.items()})
    return held


def facts(benchmark: Benchmark) -> list[Any]:
    hashes = benchmark.fingerprint
    return [benchmark.name, [query.id for query in benchmark.queries], hashes.annotations, hashes.images]


class TestHub:
    def test_a_repository_is_loaded_with_and_without_revision_and_by_configuration(
        self, load: Callable[..., list[Any]], hub: LoopbackHub, repository: Repository, circus: Path
    ) -> None:
        pinned = repository.branches["main"][-1].oid
        names = (f"group/circus@{pinned}#made", "group/circus#made", "group/circus#made_v", f"group/circus@{pinned}")
        whole, newest, valid, *both = load(*names)
        assert whole == newest == facts(made_benchmark())
        assert valid == facts(load_benchmark(f"{circus}#made_v"))
        assert both == [facts(made_benchmark()), facts(made_benchmark(name="other"))]

    def test_of_a_named_benchmark_nothing_else_is_downloaded(
        self, load: Callable[..., list[Any]], hub: LoopbackHub, repository: Repository
    ) -> None:
        load("group/circus#made_sf")
        got = [path for _, path in hub.requests if "/resolve/" in path]
        assert any("data/made/" in path for path in got)
        assert not any("data/other/" in path for path in got)

    def test_a_revision_gives_what_it_held(
        self, load: Callable[..., list[Any]], repository: Repository, tmp_path: Path
    ) -> None:
        pinned = repository.branches["main"][-1].oid
        repository.commit("moved on", {"manifest.json": Blob(b"{}")})
        held, moved = load(f"group/circus@{pinned}#made", "group/circus#made")
        assert held == facts(made_benchmark())
        assert "schema version None" in moved

    @pytest.mark.usefixtures("repository")
    def test_what_is_not_there_is_named(self, load: Callable[..., list[Any]]) -> None:
        revision, config, typo = load("group/circus@0000000", "group/circus#mad", "group/circle")
        assert revision.startswith("the dataset repository group/circus at 0000000 cannot be had")
        assert "no benchmark or subset 'mad'; those there may be: made, made_full, made_sf, made_v, other" in config
        assert typo.startswith("group/circle: neither a dataset folder nor a protocol (close: ")
        assert "the dataset repository group/circle cannot be had" in typo

    @pytest.mark.usefixtures("repository")
    def test_what_was_downloaded_is_there_without_a_network(self, load: Callable[..., list[Any]]) -> None:
        online = load("group/circus#made")
        assert load("group/circus#made", HF_HUB_OFFLINE="1") == online

    def test_a_hub_that_cannot_be_reached_is_named(self, load: Callable[..., list[Any]]) -> None:
        (said,) = load("group/circus@v1", HF_ENDPOINT="http://127.0.0.1:9")
        assert said.startswith("the dataset repository group/circus at v1 cannot be had")
