"""The dataset folder: what is in it, what others read from it, and what is refused."""

from __future__ import annotations

import dataclasses
import io
import json
import os
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.parts import FREE, IN_SUBSET, made_benchmark, made_labels, made_part, png, without_images

from circus_bench.benchmark import Defect, Gallery, Query
from circus_bench.errors import BenchmarkError, CircusError, FormatError, MismatchError
from circus_bench.hub import writer
from circus_bench.hub.loading import load_benchmark, load_labeled_benchmark
from circus_bench.hub.reader import read_benchmark, read_labels
from circus_bench.hub.tables import LabeledBenchmark, Table, config_name, features
from circus_bench.hub.writer import data_files, n_rows, read_manifest, save_benchmark, verify, write_dataset_folder
from circus_bench.images import Unreadable, read_image_facts
from circus_bench.io import read_json, sha256, write_json
from circus_bench.labels.labels import Subset
from circus_bench.labels.published import published_labels
from circus_bench.sources import load_source


@pytest.fixture(scope="module")
def circus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder `circus` of the made benchmark, with images."""
    out = tmp_path_factory.mktemp("built") / "circus"
    write_dataset_folder([made_part()], out, with_images=True)
    return out


@pytest.fixture
def beside(circus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in the folder that holds `circus`, with a cache of datasets of its own."""
    monkeypatch.chdir(circus.parent)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def load(config: str, **options: Any) -> Any:
    return datasets.load_dataset("circus", config, split="test", **options)


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("beside")
class TestLoading:
    @pytest.mark.parametrize("subset", Subset)
    def test_a_subset_loads_by_folder_and_configuration_name(self, subset: Subset) -> None:
        assert load(f"made_{subset}")["query_id"] == IN_SUBSET[subset]

    def test_streaming_gives_the_same_rows(self) -> None:
        def plain(row: dict[str, Any]) -> dict[str, Any]:
            return {**row, "image": row["image"].tobytes()}

        assert [plain(row) for row in load("made_sf", streaming=True)] == [plain(row) for row in load("made_sf")]

    def test_a_row_holds_the_query_and_the_evidence(self) -> None:
        row = load("made_v").remove_columns("image")[0]
        assert row == {
            "query_id": "q1",
            "query_index": 1,
            "text": "two  of “them”",
            "reference": "g1",
            "targets": ["g2"],
            "group": "number",
            "subset": [],
            "label": "composition_required",
            "detail": None,
            "best_rank_multimodal": 4,
            "best_rank_text_only": 50,
            "best_rank_image_only": None,
            "support_multimodal": None,
            "support_text_only": None,
            "support_image_only": None,
            "support_unimodal": 0,
            "human_audited": True,
            "human_valid": True,
            "stratum": "composition_required",
            "invalid_text": False,
            "invalid_reference_image": False,
            "invalid_target_image": False,
            "query_too_broad": False,
            "details": '{"kind": ["x", 1]}',
        }

    def test_a_rejected_query_has_its_reason(self) -> None:
        row = load("made_sf")[1]
        assert (row["human_valid"], row["query_too_broad"], row["invalid_text"]) == (False, True, False)

    def test_a_query_that_nobody_judged_has_no_reasons(self) -> None:
        row = load("made_full")[0]
        assert (row["human_audited"], row["human_valid"], row["query_too_broad"]) == (False, None, None)

    def test_images_keep_their_bytes(self) -> None:
        corpus = load("made_full-corpus").cast_column("image", datasets.Image(decode=False))
        assert [row["image"]["bytes"] for row in corpus] == [png(seed) for seed in range(6)]

    def test_an_image_of_a_query_is_its_reference(self) -> None:
        row = load("made_full-queries").cast_column("image", datasets.Image(decode=False))[3]
        assert row["image"]["bytes"] == png(6)  # the seventh image is the reference outside the gallery

    def test_the_queries_that_mteb_encodes_hold_nothing_else(self) -> None:
        assert load("made_full-queries").column_names == ["id", "text", "image"]

    def test_qrels_hold_every_target_of_the_subset(self) -> None:
        pairs = [(row["query-id"], row["corpus-id"], row["score"]) for row in load("made_sf-qrels")]
        assert pairs == [("q1", "g2", 1), ("q2", "g3", 1), ("q2", "g4", 1), ("q3", "g5", 1)]

    def test_an_unknown_configuration_is_refused_by_name(self) -> None:
        with pytest.raises(ValueError, match="made_sf"):
            load("made_x")

    def test_mteb_reads_the_triple_of_a_subset(self) -> None:
        from mteb.abstasks.retrieval_dataset_loaders import RetrievalDatasetLoader

        data = RetrievalDatasetLoader("circus", revision="any", split="test", config="made_sf").load()
        assert data["queries"]["id"] == IN_SUBSET[Subset.SF]
        assert data["corpus"]["id"] == [f"g{i}" for i in range(6)]
        assert data["relevant_docs"]["q2"] == {"g3": 1, "g4": 1}

    def test_mteb_batches_the_corpus_and_the_queries(self) -> None:
        from mteb._create_dataloaders import create_dataloader
        from mteb.abstasks.retrieval_dataset_loaders import RetrievalDatasetLoader
        from mteb.abstasks.task_metadata import TaskMetadata
        from mteb.types import PromptType

        metadata = TaskMetadata(
            name="Made",
            description="made",
            dataset={"path": "circus", "revision": "any"},
            type="Any2AnyRetrieval",
            category="it2i",
            modalities=["image", "text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="hit_rate_at_10",
            date=None,
            domains=None,
            task_subtypes=None,
            license=None,
            annotations_creators=None,
            dialect=None,
            sample_creation=None,
            bibtex_citation=None,
            reference=None,
        )
        data = RetrievalDatasetLoader("circus", revision="any", split="test", config="made_v").load()
        for kind, part, count in ((PromptType.document, data["corpus"], 6), (PromptType.query, data["queries"], 2)):
            batches = list(create_dataloader(part, task_metadata=metadata, prompt_type=kind, batch_size=8))
            assert [len(batch["image"]) for batch in batches] == [count]


class TestWriting:
    def test_subsets_share_one_corpus(self, circus: Path) -> None:
        configs = read_manifest(circus)["benchmarks"]["made"]["configs"]
        assert {of["folder"] for of in configs.values() if of["table"] == "corpus"} == {"data/made/corpus"}

    def test_the_same_input_gives_the_same_bytes(self, circus: Path, tmp_path: Path) -> None:
        write_dataset_folder([made_part()], tmp_path / "again", with_images=True)
        assert tree(tmp_path / "again") == tree(circus)

    def test_benchmarks_may_come_one_by_one_or_together(self, tmp_path: Path) -> None:
        one, two = made_part(name="one"), made_part(name="two")
        write_dataset_folder([two, one], tmp_path / "together")
        write_dataset_folder([one], tmp_path / "apart")
        write_dataset_folder([two], tmp_path / "apart")
        assert tree(tmp_path / "apart") == tree(tmp_path / "together")

    def test_a_benchmark_is_replaced_and_the_others_stay(self, tmp_path: Path) -> None:
        out = tmp_path / "circus"
        write_dataset_folder([made_part(name="one"), made_part(name="two")], out, with_images=True)
        before = tree(out)
        write_dataset_folder([LabeledBenchmark(made_benchmark(name="two", images=False))], out)
        after = tree(out)
        assert {p for p in after if p.startswith("data/two/")} == {
            f"data/two/{place}/00000.parquet" for place in ("full", "full-queries", "full-qrels", "corpus")
        }  # no facts about images either
        assert all(after[p] == before[p] for p in before if p.startswith("data/one/"))
        assert verify(out)["benchmarks"].keys() == {"one", "two"}

    def test_files_of_the_user_stay(self, tmp_path: Path) -> None:
        out = tmp_path / "circus"
        write_dataset_folder([made_part()], out)
        (out / "notes.txt").write_text("mine")
        write_dataset_folder([made_part()], out)
        assert (out / "notes.txt").read_text() == "mine"

    def test_a_shard_is_closed_before_it_grows_too_big(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "_GROUP_ROWS", {True: 2, False: 2})
        part = made_part(size=64)  # noise of 64 x 64 RGB pixels takes 12,288 bytes or a little more
        write_dataset_folder([part], tmp_path / "circus", with_images=True, shard_bytes=30_000)
        shards = data_files(tmp_path / "circus", read_manifest(tmp_path / "circus"), "made_full-corpus")
        assert [pq.read_metadata(path).num_rows for path in shards] == [2, 2, 2]
        assert list(read_benchmark(tmp_path / "circus", "made").gallery.ids) == [f"g{i}" for i in range(6)]

    def test_progress_counts_every_row(self, tmp_path: Path) -> None:
        part, seen = made_part(), []
        write_dataset_folder([part], tmp_path / "circus", advance=lambda: seen.append(1))
        # Corpus 6; rows and queries of full 4, sf 3, v 2, twice; targets of full 5, sf 4, v 2.
        assert len(seen) == n_rows([part]) == 6 + 2 * (4 + 3 + 2) + 5 + 4 + 2

    def test_without_verdicts_there_is_only_full(self, tmp_path: Path) -> None:
        manifest = write_dataset_folder([LabeledBenchmark(made_benchmark())], tmp_path / "circus")
        assert {of["subset"] for of in manifest["benchmarks"]["made"]["configs"].values()} == {"full"}

    def test_without_labels_of_all_queries_there_is_no_sf(self, tmp_path: Path) -> None:
        verdicts = made_labels(made_benchmark())
        some = dataclasses.replace(verdicts, by_query={key: verdicts.by_query[key] for key in ("q1", "q3")})
        manifest = write_dataset_folder([LabeledBenchmark(made_benchmark(), some)], tmp_path / "circus")
        assert {of["subset"] for of in manifest["benchmarks"]["made"]["configs"].values()} == {"full", "v"}

    def test_without_images_the_digests_that_are_known_are_written(self, tmp_path: Path) -> None:
        benchmark = made_benchmark()
        write_dataset_folder([LabeledBenchmark(benchmark)], tmp_path / "circus", with_images=False)
        corpus = pq.read_table(tmp_path / "circus/data/made/corpus/00000.parquet")
        known = benchmark.inspect().readable
        assert corpus.to_pylist() == [{"id": i, "digest": known[i].digest} for i in benchmark.gallery.ids]

    def test_the_manifest_names_every_file_with_its_checksum(self, circus: Path) -> None:
        written = {p.relative_to(circus).as_posix(): sha256(p) for p in circus.rglob("*") if p.is_file()}
        del written["manifest.json"]
        assert {name: of["sha256"] for name, of in read_manifest(circus)["files"].items()} == written

    def test_an_interrupted_build_leaves_the_folder_as_it_was(self, tmp_path: Path) -> None:
        out = tmp_path / "circus"
        write_dataset_folder([made_part()], out)
        before = tree(out)

        def stop() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_dataset_folder([made_part(name="other")], out, advance=stop)
        assert tree(out) == before
        assert [path.name for path in tmp_path.iterdir()] == ["circus"]

    def test_a_build_that_was_killed_between_its_renames_is_undone(self, tmp_path: Path) -> None:
        out = tmp_path / "circus"
        write_dataset_folder([made_part(name="one")], out)
        out.rename(tmp_path / ".circus.old")
        manifest = write_dataset_folder([made_part(name="two")], out)
        assert manifest["benchmarks"].keys() == {"one", "two"}
        assert [path.name for path in tmp_path.iterdir()] == ["circus"]

    def test_a_folder_changed_by_another_build_is_not_overwritten(self, tmp_path: Path) -> None:
        out = tmp_path / "circus"
        write_dataset_folder([made_part(name="one")], out)
        pending = ["two"]

        def build_another() -> None:
            while pending:
                write_dataset_folder([made_part(name=pending.pop())], out)

        with pytest.raises(MismatchError, match="in the meantime"):
            write_dataset_folder([made_part(name="three")], out, advance=build_another)
        assert read_manifest(out)["benchmarks"].keys() == {"one", "two"}


class TestRefusals:
    def test_a_folder_of_something_else_is_not_touched(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("years of work")
        with pytest.raises(CircusError, match="no dataset folder"):
            write_dataset_folder([made_part()], tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]

    def test_two_benchmarks_of_one_name_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(CircusError, match="'made'"):
            write_dataset_folder([made_part(), made_part()], tmp_path / "circus")


class TestImages:
    """Images go in whenever they are at hand; `test_publish` has what is refused for it."""

    @pytest.mark.parametrize("name", ["cirr", "fashioniq", "lasco", "circo", "rmir"])
    def test_pixels_of_a_known_restricted_source_are_for_local_use_whatever_it_says(
        self, name: str, tmp_path: Path
    ) -> None:
        part = LabeledBenchmark(made_benchmark(name=name, source=FREE))
        manifest = write_dataset_folder([part], tmp_path / "circus")
        assert (manifest["publishable"], manifest["benchmarks"][name]["pixels"]) == (False, True)

    def test_pixels_of_a_renamed_restricted_source_are_for_local_use(self, tmp_path: Path) -> None:
        protocol = dataclasses.replace(made_benchmark().protocol, id="cirr/mbeir")
        part = LabeledBenchmark(made_benchmark(name="mine", protocol=protocol))
        assert write_dataset_folder([part], tmp_path / "circus")["publishable"] is False

    def test_pixels_of_an_unknown_source_need_its_permission(self, tmp_path: Path) -> None:
        part = LabeledBenchmark(made_benchmark(source={"license": "CC0-1.0"}))
        assert write_dataset_folder([part], tmp_path / "circus")["publishable"] is False

    def test_one_restricted_benchmark_keeps_the_whole_folder_local(self, tmp_path: Path) -> None:
        assert write_dataset_folder([made_part()], tmp_path / "circus")["publishable"] is True
        write_dataset_folder([LabeledBenchmark(made_benchmark(name="cirr"))], tmp_path / "circus")
        assert read_manifest(tmp_path / "circus")["publishable"] is False
        write_dataset_folder([LabeledBenchmark(made_benchmark(name="cirr"))], tmp_path / "circus", with_images=False)
        assert read_manifest(tmp_path / "circus")["publishable"] is True

    def test_restricted_annotations_may_be_published(self, tmp_path: Path) -> None:
        manifest = write_dataset_folder([made_part(name="cirr")], tmp_path / "circus", with_images=False)
        assert (manifest["publishable"], manifest["benchmarks"]["cirr"]["pixels"]) == (True, False)

    def test_annotations_alone_have_no_images_to_write(self, tmp_path: Path) -> None:
        part = LabeledBenchmark(made_benchmark(images=False))
        manifest = write_dataset_folder([part], tmp_path / "circus")
        assert (manifest["publishable"], manifest["benchmarks"]["made"]["pixels"]) == (True, False)
        assert not (tmp_path / "circus" / writer.IMAGE_FACTS.format("made")).exists()

    def test_an_image_that_cannot_be_decoded_is_kept_and_counted_and_not_published(self, tmp_path: Path) -> None:
        held = made_benchmark().gallery.images
        assert held is not None
        benchmark = without_images(made_benchmark()).with_images({**held, "g4": b"<html>404</html>"})
        manifest = write_dataset_folder([LabeledBenchmark(benchmark)], tmp_path / "circus")
        assert (manifest["publishable"], manifest["benchmarks"]["made"]["unreadable_images"]) == (False, 1)
        loaded = load_benchmark(tmp_path / "circus")
        assert (loaded.gallery.images or {})["g4"] == b"<html>404</html>"
        assert loaded.inspect().unreadable == {"g4": Unreadable.NOT_AN_IMAGE}

    def test_sound_images_leave_no_count(self, circus: Path) -> None:
        assert "unreadable_images" not in read_manifest(circus)["benchmarks"]["made"]

    def test_a_missing_image_is_null_where_it_is_allowed(self, tmp_path: Path) -> None:
        held = {name: data for name, data in (made_benchmark().gallery.images or {}).items() if name != "g4"}
        benchmark = made_benchmark(gallery=Gallery(made_benchmark().gallery.ids, held), allow={Defect.MISSING_IMAGE})
        write_dataset_folder([LabeledBenchmark(benchmark)], tmp_path / "circus")
        corpus = pq.read_table(tmp_path / "circus/data/made/corpus/00000.parquet").to_pylist()
        assert [row["id"] for row in corpus if row["image"] is None] == ["g4"]
        assert read_manifest(tmp_path / "circus")["benchmarks"]["made"]["unreadable_images"] == 1
        assert load_benchmark(tmp_path / "circus").fingerprint == benchmark.fingerprint

    def test_the_facts_say_what_decoding_found(self, circus: Path) -> None:
        facts = read_image_facts(circus / writer.IMAGE_FACTS.format("made"))
        assert facts == made_benchmark().inspect()


class TestVerify:
    @pytest.fixture
    def built(self, tmp_path: Path) -> Path:
        write_dataset_folder([made_part()], tmp_path / "circus")
        return tmp_path / "circus"

    def test_an_untouched_folder_passes(self, built: Path) -> None:
        assert verify(built) == read_manifest(built)

    def test_a_changed_byte_is_found(self, built: Path) -> None:
        path = built / "data/made/v/00000.parquet"
        data = bytearray(path.read_bytes())
        data[50] ^= 1
        path.write_bytes(bytes(data))
        with pytest.raises(FormatError, match=r"were changed \(1: 'data/made/v/00000.parquet'\)"):
            verify(built)

    def test_a_missing_file_is_found(self, built: Path) -> None:
        (built / "README.md").unlink()
        with pytest.raises(FormatError, match=r"are missing \(1: 'README.md'\)"):
            verify(built)

    def test_a_file_that_no_manifest_names_is_found(self, built: Path) -> None:
        (built / "data/made/v/00001.parquet").write_bytes(b"x")
        with pytest.raises(FormatError, match=r"in no manifest \(1: 'data/made/v/00001.parquet'\)"):
            verify(built)

    def test_another_schema_version_is_refused(self, built: Path) -> None:
        write_json(built / "manifest.json", {**read_json(built / "manifest.json"), "schema_version": 99})
        with pytest.raises(FormatError, match="schema version 99"):
            verify(built)

    def test_a_folder_without_manifest_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match="circus-bench data make"):
            verify(tmp_path)


class TestReadingBack:
    def test_the_benchmark_is_the_one_that_was_written(self, circus: Path) -> None:
        read = read_benchmark(circus, "made")
        assert read == made_benchmark()
        assert read.fingerprint == made_benchmark().fingerprint

    def test_the_details_come_back(self, circus: Path) -> None:
        assert read_benchmark(circus, "made").queries[1].details == {"kind": ["x", 1]}

    def test_a_subset_keeps_the_gallery_and_has_its_own_fingerprint(self, circus: Path) -> None:
        whole, part = load_benchmark(circus), load_benchmark(f"{circus}#made_v")
        assert [query.id for query in part.queries] == IN_SUBSET[Subset.V]
        assert part.gallery.ids == whole.gallery.ids
        assert not part.fingerprint.matches(whole.fingerprint)

    def test_verdicts_come_back(self, circus: Path) -> None:
        assert read_labels(circus, "made") == made_labels(made_benchmark())

    def test_findings_come_back(self, tmp_path: Path) -> None:
        queries = (*made_benchmark().queries, Query("q9", "g1", "odd", ("g1",)))
        allow = frozenset({Defect.REFERENCE_IS_TARGET})
        benchmark = made_benchmark(queries=queries, allow=allow, images=False)
        write_dataset_folder([LabeledBenchmark(benchmark)], tmp_path / "circus")
        assert read_benchmark(tmp_path / "circus", "made").findings == benchmark.findings

    def test_altered_queries_are_found(self, tmp_path: Path) -> None:
        out = tmp_path / "circus"
        write_dataset_folder([made_part(images=False)], out)
        path = out / "data/made/full/00000.parquet"
        table = pq.read_table(path)
        texts = table["text"].to_pylist()
        pq.write_table(table.set_column(table.column_names.index("text"), "text", [["other", *texts[1:]]]), path)
        with pytest.raises(FormatError, match="fingerprint differs"):
            read_benchmark(out, "made")

    def test_an_unknown_benchmark_is_refused_with_those_there_are(self, circus: Path) -> None:
        with pytest.raises(CircusError, match="'made'"):
            read_benchmark(circus, "other")

    def test_a_subset_that_was_not_built_is_refused_with_what_it_needs(self, tmp_path: Path) -> None:
        write_dataset_folder([LabeledBenchmark(made_benchmark(images=False))], tmp_path / "circus")
        with pytest.raises(CircusError, match="made: the subset 'sf' needs labels or human judgments"):
            load_benchmark(f"{tmp_path / 'circus'}#made_sf")


class TestJoinImages:
    @pytest.fixture
    def bare(self, tmp_path: Path) -> Path:
        """Without images, and with their digests."""
        write_dataset_folder([made_part()], tmp_path / "bare", with_images=False)
        return tmp_path / "bare"

    @pytest.fixture
    def files(self, tmp_path: Path) -> Path:
        (tmp_path / "files/deep").mkdir(parents=True)
        for seed, image_id in enumerate((*(f"g{i}" for i in range(6)), "outside")):
            (tmp_path / "files/deep" / f"{image_id}.png").write_bytes(png(seed))
        return tmp_path / "files"

    def test_the_joined_folder_is_that_which_was_written_with_images(
        self, bare: Path, files: Path, tmp_path: Path, circus: Path
    ) -> None:
        joined = load_labeled_benchmark(bare, images=files)
        assert joined.benchmark.fingerprint == made_benchmark().fingerprint
        write_dataset_folder([joined], tmp_path / "joined")
        assert tree(tmp_path / "joined") == tree(circus)

    def test_a_missing_image_is_named(self, bare: Path, files: Path) -> None:
        (files / "deep/g3.png").unlink()
        with pytest.raises(BenchmarkError, match="'g3'"):
            load_benchmark(bare, images=files)

    def test_an_image_with_other_pixels_is_named(self, bare: Path, files: Path) -> None:
        (files / "deep/g3.png").write_bytes(png(99))
        with pytest.raises(MismatchError, match="'g3'"):
            load_benchmark(bare, images=files)

    def test_the_same_pixels_in_another_file_are_taken(self, bare: Path, files: Path) -> None:
        file = io.BytesIO()
        Image.open(io.BytesIO(png(3))).save(file, "WEBP", lossless=True)
        (files / "deep/g3.png").unlink()
        (files / "deep/g3.webp").write_bytes(file.getvalue())
        joined = load_benchmark(bare, images=files)
        assert joined.fingerprint == made_benchmark().fingerprint
        assert (joined.gallery.images or {})["g3"] == file.getvalue()

    def test_restricted_images_make_a_folder_for_local_use(self, tmp_path: Path) -> None:
        held = made_benchmark().gallery.images
        assert held is not None
        write_dataset_folder([LabeledBenchmark(made_benchmark(name="cirr", images=False))], tmp_path / "bare")
        save_benchmark(load_benchmark(tmp_path / "bare", images=held), tmp_path / "joined")
        assert read_manifest(tmp_path / "joined")["publishable"] is False


class TestPublishedSubsets:
    """Sizes of the subsets: 685 = 271 + 414 and 56 = 53 + 3 (labels), the rest of the validated indices' files."""

    @pytest.mark.parametrize(
        ("protocol", "expected"),
        [
            ("cirr/circus", {"full": 4170, "sf": 685, "v": 303}),
            ("circo/val", {"full": 220, "sf": 56, "v": 42}),
            ("fashioniq/circus", {"full": 6003, "v": 586}),
        ],
    )
    def test_the_official_annotations_give_subsets_of_the_published_sizes(
        self, protocol: str, expected: dict[str, int], shared: Path, tmp_path: Path
    ) -> None:
        name = protocol.partition("/")[0]
        part = LabeledBenchmark(load_source(protocol, shared / "data" / name), published_labels(name))
        manifest = write_dataset_folder([part], tmp_path / "circus")
        configs = manifest["benchmarks"][name]["configs"].values()
        assert {of["subset"]: of["rows"] for of in configs if of["table"] == "rows"} == expected


def test_every_table_is_written_with_its_columns(circus: Path) -> None:
    manifest = read_manifest(circus)
    for table in Table:
        for path in data_files(circus, manifest, config_name("made", Subset.SF, table)):
            assert pq.read_schema(path).names == list(features(table, with_images=True))


def test_the_manifest_is_strict_json(circus: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads((circus / "manifest.json").read_text(), parse_constant=refuse)


def test_the_folder_holds_no_path_of_this_machine(tmp_path: Path) -> None:
    write_dataset_folder([made_part()], tmp_path / "circus")
    for path in (tmp_path / "circus").rglob("*"):
        if path.is_file():
            assert os.fsencode(tmp_path) not in path.read_bytes()


def test_a_saved_benchmark_and_a_fresh_one_give_the_same_folder(tmp_path: Path, circus: Path) -> None:
    save_benchmark(made_benchmark(), tmp_path / "saved")
    loaded = load_benchmark(tmp_path / "saved")
    write_dataset_folder([LabeledBenchmark(loaded, made_labels(loaded))], tmp_path / "circus", with_images=True)
    assert tree(tmp_path / "circus") == tree(circus)
