"""The report: complete, self-contained, honest about what it lacks, and the same every time."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from circus_bench.audit.audit import Audit, audit_best_ranks, audit_runs
from circus_bench.audit.figures import THUMBNAIL, Thumbnails
from circus_bench.audit.report import write_report
from circus_bench.benchmark import Benchmark, Condition, Defect, Gallery, Protocol, Query, ReferencePolicy
from circus_bench.encoding.encoder import ModelIdentity
from circus_bench.encoding.sanity_checks import EncoderWarning
from circus_bench.errors import CircusError, MismatchError
from circus_bench.ranking.ranker import ABSENT, Backend, Targets, rank_targets
from circus_bench.runs.manifest import Manifest
from circus_bench.runs.run import Run
from circus_bench.runs.tables import ConditionResult

VOID = {"meta", "link", "br", "image", "rect", "use", "path"}
EVIL = """<script>alert(1)</script> & "x" '</style>"""


class Page(HTMLParser):
    """What the tests ask of a page: its text, its elements, and whether every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.pieces: list[str] = []
        self.feed(html)
        self.text = " ".join("".join(self.pieces).replace("\xa0", " ").split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "title"} & set(self.open):
            self.pieces.append(data)

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [
            attrs
            for name, attrs in self.elements
            if name == tag and all(attrs.get(key.rstrip("_")) == value for key, value in wanted.items())
        ]


def jpeg(seed: int, size: tuple[int, int] = (300, 200)) -> bytes:
    color = tuple(np.random.default_rng(seed).integers(0, 256, 3).tolist())
    file = io.BytesIO()
    Image.new("RGB", size, color).save(file, "JPEG")
    return file.getvalue()


def make_benchmark(n: int = 24, *, text: str = "make it red", with_images: bool = True, **changes: Any) -> Benchmark:
    """n queries of two groups over a gallery of 3n images; query i has the reference 2i and the target 2i + 1."""
    ids = tuple(f"image-{i}" for i in range(3 * n))
    queries = tuple(
        Query(f"q{i}", ids[2 * i], f"{text} {i}", (ids[2 * i + 1],), group="even" if i % 2 == 0 else "odd")
        for i in range(n)
    )
    images = {name: jpeg(seed) for seed, name in enumerate(ids)} if with_images else None
    settings: dict[str, Any] = {
        "protocol": Protocol("toy/test", ReferencePolicy.KEPT),
        "source": {"license": "CC0-1.0"},
    }
    return Benchmark(name="toy", queries=queries, gallery=Gallery(ids, images), **{**settings, **changes})


def make_run(
    benchmark: Benchmark, *, model: str = "lab/model", seed: int = 0, alarms: tuple[EncoderWarning, ...] = ()
) -> Run:
    """A Run on random embeddings.

    Multimodal queries lie at the target; text-only ones do for queries 0, 3, 6, ...; image-only ones for 0, 4, 8, ...
    and at the reference for the others; one query in five is lost in every condition.
    """
    rng = np.random.default_rng(seed)
    place = {image_id: position for position, image_id in enumerate(benchmark.gallery.ids)}
    gallery = rng.normal(size=(len(place), 32)).astype(np.float32)
    index = [[place.get(target, ABSENT) for target in query.targets] for query in benchmark.queries]
    references = [place.get(query.reference, ABSENT) for query in benchmark.queries]
    targets = Targets.of(index, references)
    results = {}
    for condition in Condition:
        rows = rng.normal(size=(len(index), 32)).astype(np.float32)
        for i, (of_query, reference) in enumerate(zip(index, references, strict=True)):
            found = {"multimodal": True, "text_only": i % 3 == 0, "image_only": i % 4 == 0}[condition] and i % 5 != 4
            if found:
                rows[i] = gallery[of_query[0]]
            elif condition is Condition.IMAGE_ONLY:
                rows[i] = gallery[reference]
        ranking = rank_targets(rows, gallery, targets=targets, top_k=20)
        top = tuple(tuple(benchmark.gallery.ids[column] for column in row) for row in ranking.top)
        results[condition] = ConditionResult(ranking, top, ((),) * len(top))
    manifest = Manifest(
        model=ModelIdentity(model, "1", "float32"),
        benchmark=benchmark.name,
        fingerprint=benchmark.fingerprint,
        protocol=dataclasses.asdict(benchmark.protocol),
        n_queries=len(index),
        n_gallery=len(place),
        dim=32,
        seed=0,
        backend=Backend.NUMPY,
        alarms=alarms,
        source=benchmark.source,
        software={"numpy": "2"},
        date="2026-01-02T03:04:05+00:00",
    )
    queries = tuple(query.id for query in benchmark.queries)
    return Run(manifest, queries, tuple(query.targets for query in benchmark.queries), results)


def make_audit(benchmark: Benchmark, **options: Any) -> Audit:
    return audit_runs([make_run(benchmark, model=f"lab/model-{seed}", seed=seed) for seed in range(3)], **options)


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return make_benchmark()


@pytest.fixture(scope="module")
def audit(benchmark: Benchmark) -> Audit:
    return make_audit(benchmark, k=3)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def write(audit: Audit, **options: Any) -> str:
        write_report(audit, tmp_path / "report.html", **options)
        return (tmp_path / "report.html").read_text(encoding="utf-8")

    return write


@pytest.fixture(scope="module")
def html(benchmark: Benchmark, audit: Audit, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(audit, path, benchmark=benchmark)
    return path.read_text(encoding="utf-8")


def test_the_page_is_well_formed(html: str) -> None:
    page = Page(html)
    assert html.startswith("<!doctype html>")
    assert page.open == []
    assert len(page.all("h1")) == 1
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_every_section_of_a_full_audit_is_there(html: str) -> None:
    ids = {attrs.get("id") for attrs in Page(html).all("h2")}
    assert ids == {"labels", "groups", "models", "sensitivity", "examples", "provenance"}


def test_the_answer_names_share_interval_and_chance(html: str, audit: Audit) -> None:
    share = audit.summary.shares["shortcut"]  # type: ignore[index]  # a StrEnum member equals its value
    assert audit.chance is not None
    expected = (
        f"{100 * share.value:.1f} % of 24 queries [{100 * share.low:.1f}, {100 * share.high:.1f}] are solved by text "
        f"or image alone; by chance the pool would solve {100 * audit.chance.value:.1f} %."
    )
    assert expected in Page(html).text


def test_every_table_has_a_caption_and_scoped_headings(html: str) -> None:
    page = Page(html)
    assert len(page.all("table")) == len(page.all("caption")) >= 8
    assert all(attrs.get("scope") for attrs in page.all("th"))


def test_every_figure_and_picture_has_a_name_or_is_hidden(html: str) -> None:
    svgs = Page(html).all("svg")
    assert len([attrs for attrs in svgs if attrs.get("role") == "img"]) > 20
    assert all(attrs.get("aria-label") if attrs.get("role") == "img" else attrs.get("aria-hidden") for attrs in svgs)


def test_nothing_is_fetched_when_the_page_is_opened(html: str) -> None:
    page = Page(html)
    assert not page.all("script")
    links = [
        value
        for _, attrs in page.elements
        for name, value in attrs.items()
        if name in {"src", "srcset", "href", "xlink:href", "data", "action", "poster"}
    ]
    assert links
    assert all(value and value.startswith(("#", "data:")) for value in links)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", html))
    assert "@import" not in html
    # Namespaces are names, not addresses that a browser asks.
    assert not re.search(r"https?://", re.sub(r'xmlns(:\w+)?="[^"]*"', "", html))


def test_every_reference_within_the_page_has_its_element(html: str) -> None:
    page = Page(html)
    ids = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    used = {attrs[name] for _, attrs in page.elements for name in ("href", "xlink:href") if name in attrs}
    used |= set(re.findall(r"url\((#[^)]*)\)", html))
    assert {target[1:] for target in used if target and target.startswith("#")} <= ids


def test_the_same_audit_gives_the_same_bytes(
    html: str, benchmark: Benchmark, audit: Audit, write: Callable[..., str]
) -> None:
    assert write(audit, benchmark=benchmark) == html


def test_the_readers_matplotlib_settings_do_not_matter_and_are_kept(
    html: str, benchmark: Benchmark, audit: Audit, write: Callable[..., str]
) -> None:
    import matplotlib as mpl

    with mpl.rc_context({"axes.facecolor": "black", "font.size": 30, "svg.fonttype": "path"}):
        assert write(audit, benchmark=benchmark) == html
        assert mpl.rcParams["font.size"] == 30


def test_text_in_figures_stays_text(html: str) -> None:
    assert re.search(r"<text[^>]*>lab/model-2</text>", html)


def test_a_picture_is_embedded_once_however_often_it_is_shown(html: str) -> None:
    page = Page(html)
    pictures = [attrs["href"] for attrs in page.all("image")]
    assert len(pictures) == len(set(pictures))
    assert len(page.all("use")) > len(pictures)


def test_outside_text_is_escaped(write: Callable[..., str]) -> None:
    benchmark = make_benchmark(text=EVIL, source={EVIL: EVIL})
    queries = tuple(dataclasses.replace(query, group=EVIL if i else "") for i, query in enumerate(benchmark.queries))
    benchmark = dataclasses.replace(benchmark, name=EVIL, queries=queries)
    audit = audit_runs(
        [make_run(benchmark, model=f"{EVIL}$x^2$", alarms=(EncoderWarning.COLLAPSED,)), make_run(benchmark)]
    )
    page = Page(write(audit, benchmark=benchmark))
    assert not page.all("script")
    assert page.open == []
    assert EVIL in page.text
    assert page.text.count("$x^2$") > 1


def test_an_undefined_comp_gap_is_called_undefined(html: str, benchmark: Benchmark, write: Callable[..., str]) -> None:
    # With K as large as the gallery (72) every query has a hit from one modality, so the shortcut-free subset is empty.
    audit = make_audit(benchmark, k=72)
    assert not audit.shortcut_labels.shortcut_free.any()
    shown = Page(write(audit, benchmark=benchmark)).text
    assert "CompGap of the pool (mean over its models)undefined" in shown.replace(") undefined", ")undefined")
    assert "undefined" not in Page(html).text.replace("undefined when both together find nothing", "")


def test_groups_show_their_zero_cells_faintly(html: str, benchmark: Benchmark, audit: Audit) -> None:
    table = audit.by_group(benchmark)
    assert set(table) == {"even", "odd"}
    page = Page(html)
    assert page.all("td", class_="n zero")
    assert "share of shortcuts" in page.text


def test_a_benchmark_without_groups_has_no_group_table(write: Callable[..., str]) -> None:
    benchmark = make_benchmark(with_images=False)
    queries = tuple(dataclasses.replace(query, group="") for query in benchmark.queries)
    benchmark = dataclasses.replace(benchmark, queries=queries)
    assert not Page(write(make_audit(benchmark), benchmark=benchmark)).all("h2", id="groups")


def test_without_a_benchmark_groups_and_examples_are_left_out(audit: Audit, write: Callable[..., str]) -> None:
    ids = {attrs.get("id") for attrs in Page(write(audit)).all("h2")}
    assert ids == {"labels", "models", "sensitivity", "provenance"}


def test_published_minima_give_a_report_without_models(tmp_path: Path, write: Callable[..., str]) -> None:
    path = tmp_path / "minima.csv"
    columns = "query_idx,best_rank_multimodal,best_rank_text_only,best_rank_image_only\n"
    path.write_text(columns + "0,1,2,90\n1,3,50,60\n2,80,70,60\n3,9,9,9\n")
    page = Page(write(audit_best_ranks(path)))
    assert {attrs.get("id") for attrs in page.all("h2")} == {"labels", "sensitivity", "provenance"}
    assert "50.0 % of 4 queries" in page.text  # queries 0 and 3 have a unimodal rank of at most 10
    assert "by chance" not in page.text
    assert page.open == []


def test_an_annotation_only_benchmark_shows_ids(write: Callable[..., str]) -> None:
    benchmark = make_benchmark(with_images=False)
    page = Page(write(make_audit(benchmark), benchmark=benchmark))
    assert not page.all("image")
    assert page.all("article")
    assert "image-0" in page.text
    assert "annotations only" in page.text


def test_a_missing_picture_is_said_to_be_missing(write: Callable[..., str]) -> None:
    whole = make_benchmark()
    assert whole.gallery.images is not None
    images = {name: data for name, data in whole.gallery.images.items() if name != "image-0"} | {"image-1": b"no image"}
    gallery = Gallery(whole.gallery.ids, images)
    benchmark = dataclasses.replace(whole, gallery=gallery, allow=frozenset({Defect.MISSING_IMAGE}))
    text = Page(write(make_audit(benchmark, k=3), benchmark=benchmark)).text
    assert "no picture: missing" in text
    assert "no picture: not an image" in text
    assert "missing image (1: 'image-0')" in text


def test_alarms_and_left_out_images_are_shown_before_the_answer(write: Callable[..., str]) -> None:
    benchmark = make_benchmark().without_images(["image-71"])
    audit = audit_runs([make_run(benchmark, alarms=(EncoderWarning.TEXT_IGNORED,))])
    text = Page(write(audit, benchmark=benchmark)).text
    start = text.index("Read this first")
    assert (
        start < text.index("another modification text does not move the multimodal embedding") < text.index("solved by")
    )
    assert start < text.index("Images left out") < text.index("solved by")


def test_a_sound_audit_has_no_warning(html: str) -> None:
    assert "Read this first" not in html


def test_examples_are_spread_evenly_and_as_many_as_asked_for(
    benchmark: Benchmark, audit: Audit, write: Callable[..., str]
) -> None:
    shown = re.findall(r"query (q\d+)", Page(write(audit, benchmark=benchmark, examples=2)).text)
    labels = audit.shortcut_labels
    kinds = np.where(labels.details != "", labels.details, labels.labels)
    for kind in set(kinds.tolist()):
        of_kind = np.flatnonzero(kinds == kind)
        ends = dict.fromkeys((f"q{of_kind[0]}", f"q{of_kind[-1]}"))
        assert [name for name in shown if kinds[int(name[1:])] == kind] == list(ends)
    assert "<article" not in write(audit, benchmark=benchmark, examples=0)


def test_a_kept_reference_is_marked_and_a_removed_one_left_out(write: Callable[..., str]) -> None:
    kept = make_benchmark(with_images=False)
    assert Page(write(make_audit(kept, k=3), benchmark=kept)).all("li", class_="reference")
    removed = make_benchmark(with_images=False, protocol=Protocol("toy/official", ReferencePolicy.REMOVED))
    page = Page(write(make_audit(removed, k=3), benchmark=removed))
    assert not page.all("li", class_="reference")
    assert "own reference is left out" in page.text


def test_a_target_carries_its_rank(html: str) -> None:
    page = Page(html)
    assert page.all("li", class_="target")
    assert "target, rank 1" in page.text


def test_queries_in_another_order_are_matched_by_id(
    html: str, benchmark: Benchmark, audit: Audit, write: Callable[..., str]
) -> None:
    # A fingerprint does not depend on the order of the queries, so such a benchmark passes as the same one.
    shuffled = dataclasses.replace(benchmark, queries=benchmark.queries[::-1])
    assert write(audit, benchmark=shuffled) == html


def test_a_foreign_benchmark_is_refused(audit: Audit, tmp_path: Path) -> None:
    with pytest.raises(MismatchError):
        write_report(audit, tmp_path / "report.html", benchmark=make_benchmark(text="another text"))
    assert not (tmp_path / "report.html").exists()


def test_minima_of_other_queries_are_refused(tmp_path: Path, benchmark: Benchmark) -> None:
    path = tmp_path / "minima.csv"
    path.write_text("query_idx,best_rank_multimodal,best_rank_text_only,best_rank_image_only\n7,1,2,90\n")
    with pytest.raises(MismatchError, match="different queries"):
        write_report(audit_best_ranks(path), tmp_path / "report.html", benchmark=benchmark)


def test_a_negative_number_of_examples_is_refused(audit: Audit, tmp_path: Path) -> None:
    with pytest.raises(CircusError, match="examples"):
        write_report(audit, tmp_path / "report.html", examples=-1)


@pytest.mark.parametrize("size", [(1000, 40), (40, 1000), (64, 48)])
def test_thumbnails_keep_their_shape_and_never_grow(size: tuple[int, int]) -> None:
    thumbnail = Thumbnails({"a": jpeg(0, size)}).of("a")
    assert max(thumbnail.width, thumbnail.height) == min(THUMBNAIL, max(size))
    assert thumbnail.width / thumbnail.height == pytest.approx(size[0] / size[1], rel=0.1)
