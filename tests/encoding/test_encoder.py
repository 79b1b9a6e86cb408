"""The three conditions show an encoder what they say, and inputs are encoded once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.standins import Blind, Chance, Constant, Deaf, NotANumber, StandIn, Unsteady, digest_of

from circus_bench.api.runtime import BudgetError
from circus_bench.benchmark import Benchmark, Condition, Query
from circus_bench.encoding.embedding_store import EmbeddingStore
from circus_bench.encoding.encoder import BenchmarkEncoder, EncodeSettings, ModelIdentity
from circus_bench.encoding.sanity_checks import EncoderWarning, has_collapsed
from circus_bench.errors import EmbeddingError, ImageError, RefusedError
from circus_bench.images import black, decode
from circus_bench.runs.run import run_benchmark


@pytest.fixture
def drive(tmp_path: Path, toy_benchmark: Callable[..., Benchmark]) -> Callable[..., BenchmarkEncoder]:
    """`drive(encoder, benchmark=None, settings=None)`: the driver, with one store for the whole test."""

    def make(
        encoder: StandIn, benchmark: Benchmark | None = None, settings: EncodeSettings | None = None
    ) -> BenchmarkEncoder:
        store = EmbeddingStore(tmp_path)
        return BenchmarkEncoder(encoder, benchmark or toy_benchmark(), store=store, settings=settings)

    return make


def image_of(benchmark: Benchmark, image_id: str) -> Image.Image:
    assert benchmark.gallery.images is not None
    return decode(benchmark.gallery.images[image_id]).image


Driver = Callable[..., BenchmarkEncoder]


def test_the_multimodal_condition_shows_the_reference_and_the_text(
    drive: Driver, toy_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark, encoder = toy_benchmark(), StandIn()
    drive(encoder, benchmark).queries(Condition.MULTIMODAL)
    expected = [(digest_of(image_of(benchmark, query.reference)), query.text) for query in benchmark.queries]
    assert encoder.seen == expected


def test_the_text_only_condition_shows_a_black_image_of_the_reference_s_size(
    drive: Driver, toy_benchmark: Callable[..., Benchmark], encode_image: Callable[..., bytes]
) -> None:
    sizes = {"a": (40, 50), "b": (60, 30), "c": (32, 32)}
    images = {name: encode_image(Image.new("RGB", size, name_color(name)), "PNG") for name, size in sizes.items()}
    queries = (Query("q1", "a", "first", ("b",)), Query("q2", "b", "second", ("c",)))
    encoder = StandIn()
    drive(encoder, toy_benchmark(queries=queries, gallery="abc", images=images)).queries(Condition.TEXT_ONLY)
    assert encoder.seen == [(digest_of(black((40, 50))), "first"), (digest_of(black((60, 30))), "second")]


def name_color(name: str) -> tuple[int, int, int]:
    return (ord(name), 0, 0)


def test_the_image_only_condition_shows_no_text(drive: Driver) -> None:
    encoder = StandIn()
    drive(encoder).queries(Condition.IMAGE_ONLY)
    assert [text for _, text in encoder.seen] == [None] * 3
    assert encoder.calls[0]["features"] == ["image"]


@pytest.mark.parametrize(
    ("condition", "category", "prompt"),
    [
        (Condition.MULTIMODAL, "it2i", {"query": "Find the image."}),
        (Condition.TEXT_ONLY, "it2i", {"query": "Find the image."}),
        (Condition.IMAGE_ONLY, "i2i", None),
    ],
)
def test_the_instruction_is_dropped_in_the_image_only_condition_alone(
    drive: Driver, condition: Condition, category: str, prompt: dict[str, str] | None
) -> None:
    encoder = StandIn()
    drive(encoder).queries(condition)
    task = encoder.calls[0]["task_metadata"]
    assert (task.category, task.prompt, encoder.calls[0]["prompt_type"].value) == (category, prompt, "query")


def test_the_gallery_is_encoded_as_documents_of_images_alone(drive: Driver) -> None:
    encoder = StandIn()
    drive(encoder).gallery()
    assert encoder.calls[0]["prompt_type"].value == "document"
    assert encoder.calls[0]["features"] == ["image"]


def test_vectors_have_unit_length(drive: Driver) -> None:
    assert np.allclose(np.linalg.norm(drive(StandIn()).gallery(), axis=1), 1, atol=1e-6)


def test_equal_inputs_are_encoded_once(drive: Driver, toy_benchmark: Callable[..., Benchmark]) -> None:
    # Four queries share two references; two of them share the text as well.
    queries = [Query(f"q{i}", "ab"[i % 2], ["x", "y", "x", "z"][i], ("c",)) for i in range(4)]
    encoder = StandIn()
    driver = drive(encoder, toy_benchmark(queries=queries))
    vectors = driver.queries(Condition.IMAGE_ONLY)
    assert len(encoder.seen) == 2
    assert np.array_equal(vectors[0], vectors[2])
    encoder.seen.clear()
    driver.queries(Condition.MULTIMODAL)
    assert len(encoder.seen) == 3  # (a, x) twice, (b, y), (b, z)


def test_images_of_equal_pixels_are_encoded_once(drive: Driver, toy_benchmark: Callable[..., Benchmark]) -> None:
    benchmark = toy_benchmark()
    images = dict(benchmark.gallery.images or {})
    images["d"] = images["a"]
    encoder = StandIn()
    vectors = drive(encoder, toy_benchmark(images=images)).gallery()
    assert len(encoder.seen) == 3
    assert np.array_equal(vectors[0], vectors[3])


def test_a_second_driver_encodes_nothing_again(drive: Driver) -> None:
    first, second = StandIn(), StandIn()
    for encoder in (first, second):
        driver = drive(encoder)
        driver.gallery()
        for condition in Condition:
            driver.queries(condition)
    assert first.seen
    assert not second.seen


@pytest.mark.parametrize("change", [{"name": "tests/other"}, {"revision": "2"}])
def test_another_model_or_revision_is_encoded_anew(drive: Driver, change: dict[str, str]) -> None:
    drive(StandIn()).gallery()
    other = StandIn()
    other.mteb_model_meta = SimpleNamespace(**{**vars(other.mteb_model_meta), **change})
    drive(other).gallery()
    assert len(other.seen) == 4


def test_another_instruction_is_encoded_anew(drive: Driver, toy_benchmark: Callable[..., Benchmark]) -> None:
    drive(StandIn()).queries(Condition.MULTIMODAL)
    protocol = dataclasses.replace(toy_benchmark().protocol, instruction="Find another image.")
    other = StandIn()
    drive(other, toy_benchmark(protocol=protocol)).queries(Condition.MULTIMODAL)
    assert len(other.seen) == 3


def test_an_encode_that_failed_keeps_the_shards_before_it(
    drive: Driver, toy_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = toy_benchmark()
    settings = EncodeSettings(batch_size=1, checkpoint_every=1)
    with pytest.raises(EmbeddingError):
        drive(NotANumber(image_of(benchmark, "c")), benchmark, settings).gallery()
    healthy = StandIn()
    healthy.mteb_model_meta = SimpleNamespace(name=NotANumber.name, revision="1")
    drive(healthy, benchmark, settings).gallery()
    # a and b were stored; c and d are left.
    assert [image for image, _ in healthy.seen] == [digest_of(image_of(benchmark, name)) for name in "cd"]


def test_a_nan_embedding_is_an_error_that_names_the_input(
    drive: Driver, toy_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = toy_benchmark()
    with pytest.raises(EmbeddingError, match=r"tests/nan gave NaN.* gallery inputs \(1: 'c'\)"):
        drive(NotANumber(image_of(benchmark, "c")), benchmark).gallery()


def test_all_refused_inputs_are_found_before_the_error_and_named(
    drive: Driver, toy_benchmark: Callable[..., Benchmark]
) -> None:
    class Refusing(StandIn):
        def encode(self, inputs: object, **options: object) -> np.ndarray:
            found = super().encode(inputs, **options)
            refused = {digest_of(image_of(benchmark, image)) for image in ("a", "d")}
            last = [image for image, _ in self.seen[-len(found) :]]
            if reasons := {at: "unsafe" for at, image in enumerate(last) if image in refused}:
                raise RefusedError(self.name, reasons)
            return found

    benchmark = toy_benchmark()
    encoder = Refusing()
    driver = drive(encoder, benchmark, EncodeSettings(batch_size=1, checkpoint_every=1))
    with pytest.raises(RefusedError, match="unsafe") as refusal:
        driver.gallery()
    assert refusal.value.reasons == {"a": "unsafe", "d": "unsafe"}
    assert len(encoder.seen) == 4


def test_an_encoder_that_costs_money_may_refuse_a_benchmark_before_its_first_call(
    tmp_path: Path, toy_benchmark: Callable[..., Benchmark]
) -> None:
    class Costly(StandIn):
        def check_budget(self, benchmark: Benchmark, *, processes: int) -> None:
            raise BudgetError(f"{len(benchmark.queries)} queries for {processes} processes")

    encoder = Costly()
    with pytest.raises(BudgetError, match="3 queries for 1 processes"):
        run_benchmark(encoder, toy_benchmark(), store=EmbeddingStore(tmp_path))
    assert not encoder.seen


def test_an_encoder_that_drops_an_input_is_an_error(drive: Driver) -> None:
    class Dropping(StandIn):
        def encode(self, inputs: object, **options: object) -> np.ndarray:
            return super().encode(inputs, **options)[1:]

    with pytest.raises(EmbeddingError, match=r"gave shape \(3, 16\) for 4 inputs"):
        drive(Dropping()).gallery()


def test_torch_tensors_of_half_precision_are_taken(drive: Driver) -> None:
    import torch

    class Half(StandIn):
        def encode(self, inputs: object, **options: object) -> torch.Tensor:
            return torch.from_numpy(super().encode(inputs, **options)).bfloat16()

    assert drive(Half()).gallery().dtype == np.float32


def test_an_encoder_without_a_name_is_refused() -> None:
    with pytest.raises(EmbeddingError, match="mteb_model_meta"):
        ModelIdentity.of(object())


def test_an_unreadable_image_stops_the_encode_before_it_starts(
    drive: Driver, toy_benchmark: Callable[..., Benchmark]
) -> None:
    images = {**(toy_benchmark().gallery.images or {}), "b": b"<html>404</html>"}
    with pytest.raises(ImageError, match=r"'b \(not_an_image\)'"):
        drive(StandIn(), toy_benchmark(images=images))


def test_progress_adds_up_whether_inputs_are_encoded_or_found(
    tmp_path: Path, toy_benchmark: Callable[..., Benchmark]
) -> None:
    for _ in range(2):
        steps: list[int] = []
        driver = BenchmarkEncoder(StandIn(), toy_benchmark(), store=EmbeddingStore(tmp_path), advance=steps.append)
        driver.gallery()
        assert sum(steps) == 4


def test_a_composed_encoder_raises_no_alarm(drive: Driver) -> None:
    assert drive(StandIn()).sanity_check().alarms == ()


def test_an_encoder_that_does_not_see_the_reference_raises_an_alarm(drive: Driver) -> None:
    assert drive(Blind()).sanity_check().alarms == (EncoderWarning.REFERENCE_IGNORED,)


def test_an_encoder_that_does_not_read_the_text_raises_an_alarm(drive: Driver) -> None:
    assert drive(Deaf()).sanity_check().alarms == (EncoderWarning.TEXT_IGNORED,)


def test_an_encoder_that_changes_from_call_to_call_raises_an_alarm(drive: Driver) -> None:
    assert drive(Unsteady()).sanity_check().alarms == (EncoderWarning.REFERENCE_LEAKS, EncoderWarning.TEXT_LEAKS)


def test_black_images_of_another_size_are_no_leak(
    drive: Driver, toy_benchmark: Callable[..., Benchmark], encode_image: Callable[..., bytes]
) -> None:
    # The two references differ in size, so the black images do, and this encoder sees it.
    images = {
        "a": encode_image(Image.new("RGB", (40, 50), "red"), "PNG"),
        "b": encode_image(Image.new("RGB", (60, 30), "blue"), "PNG"),
    }
    queries = (Query("q1", "a", "first", ("b",)), Query("q2", "b", "second", ("a",)))
    assert drive(Chance(), toy_benchmark(queries=queries, gallery="ab", images=images)).sanity_check().alarms == ()


def test_the_probe_measures_how_much_a_vector_depends_on_its_batch(drive: Driver) -> None:
    class Batched(StandIn):
        """Adds a tenth of the batch size to every component, as padding might."""

        def encode(self, inputs: object, **options: object) -> np.ndarray:
            found = super().encode(inputs, **options)
            return found + np.float32(0.1) * len(found)

    # Three queries at once against one at a time: 0.3 - 0.1.
    assert drive(Batched()).sanity_check().batch_deviation == pytest.approx(0.2, abs=1e-5)
    assert drive(StandIn()).sanity_check().batch_deviation == 0


def test_a_probe_works_with_a_single_query(drive: Driver, toy_benchmark: Callable[..., Benchmark]) -> None:
    assert drive(StandIn(), toy_benchmark(queries=[Query("q", "a", "x", ("b",))])).sanity_check().alarms == ()


def test_a_constant_encoder_has_collapsed(drive: Driver) -> None:
    assert has_collapsed(drive(Constant()).gallery())


def test_a_working_encoder_has_not_collapsed(drive: Driver) -> None:
    assert not has_collapsed(drive(StandIn()).gallery())


def test_a_gallery_of_one_has_not_collapsed() -> None:
    assert not has_collapsed(np.array([[1, 0]], np.float32))
