from __future__ import annotations

import dataclasses
import random
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from circus_bench.benchmark import Benchmark, Query, ReferencePolicy
from circus_bench.errors import BenchmarkError
from circus_bench.images import decode
from circus_bench.models.mini.examples import Mixture, NoImage, draw_batch
from circus_bench.sources.scenes import QueryKind, expected_label, language, scenes, synthetic, world

SEED = 3


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return scenes(SEED)


@pytest.fixture(scope="module")
def synthetic_set() -> synthetic.SyntheticSet:
    return synthetic.make_synthetic_set(seed=SEED, queries=600, gallery=3000)


def of_kind(synthetic_set: synthetic.SyntheticSet, *kinds: QueryKind) -> list[synthetic.SyntheticQuery]:
    return [made for made in synthetic_set.queries if made.kind in kinds]


def query(kind: str, n_text: int, n_near: int) -> Query:
    details = {"kind": kind, "edit": "", "n_text": n_text, "n_near": n_near}
    return Query("q-0000", "scene-00000", "text", ("scene-00001",), group=kind, details=details)


def says(scene: world.Scene, claim: language.Claim) -> bool:
    """Whether a scene fulfills a claim: written anew, so that the generator does not check itself."""
    if isinstance(claim, language.BackgroundClaim):
        return scene.background == claim.background
    for cell, number in enumerate(scene.cells):
        if number:
            shape, rest = divmod(number - 1, 14)
            color, size = divmod(rest, 2)
            wanted = (claim.shape, claim.color, claim.size, claim.place)
            if all(w in (None, v) for w, v in zip(wanted, (shape, color, size, cell), strict=True)):
                return True
    return False


def fitting(synthetic_set: synthetic.SyntheticSet, made: synthetic.SyntheticQuery) -> set[int]:
    """Every image but the reference that fulfills the claims of a text, found by looking at all of them."""
    cells = np.array([scene.cells for scene in synthetic_set.scenes])
    shape, color, size = (cells - 1) // 14, (cells - 1) // 2 % 7, (cells - 1) % 2
    fits = np.ones(len(cells), bool)
    for claim in made.claims:
        if isinstance(claim, language.BackgroundClaim):
            fits &= np.array([scene.background == claim.background for scene in synthetic_set.scenes])
            continue
        scene_objects = cells > 0
        for wanted, values in ((claim.shape, shape), (claim.color, color), (claim.size, size)):
            scene_objects = scene_objects & (values == wanted) if wanted is not None else scene_objects
        fits &= scene_objects.any(1) if claim.place is None else scene_objects[:, claim.place]
    return set(np.flatnonzero(fits)) - {made.reference}


# --- the benchmark as a whole


def test_same_seed_gives_the_same_bytes(benchmark):
    again = scenes(SEED)
    assert again.queries == benchmark.queries
    assert [q.details for q in again.queries] == [q.details for q in benchmark.queries]
    assert again.gallery.images == benchmark.gallery.images


def test_other_seed_gives_other_queries_and_images():
    one, other = (scenes(seed, 20, gallery=200) for seed in (1, 2))
    assert [q.text for q in one.queries] != [q.text for q in other.queries]
    assert one.gallery.images != other.gallery.images


def test_gallery_and_queries_have_the_sizes_asked_for():
    benchmark = scenes(5, 40, gallery=333)
    assert (len(benchmark.queries), len(benchmark.gallery.ids)) == (40, 333)


def test_ids_are_numbered(benchmark):
    assert benchmark.gallery.ids[12] == "scene-00012"
    assert benchmark.queries[1].id == "q-0001"


def test_every_kind_has_its_share(benchmark):
    # 600 queries times the shares .2, .2, .35, .1, .075 and .075.
    assert Counter(q.group for q in benchmark.queries) == {
        "text_shortcut": 120,
        "image_shortcut": 120,
        "composition_required": 210,
        "too_broad": 60,
        "invalid_target": 45,
        "invalid_text": 45,
    }


@pytest.mark.parametrize("queries", [20, 21, 37])
def test_kinds_add_up_when_shares_do_not_divide(queries):
    assert len(synthetic.make_synthetic_set(seed=1, queries=queries, gallery=300).queries) == queries


def test_protocol_removes_the_reference(benchmark):
    assert benchmark.protocol.id == "scenes/test"
    assert benchmark.protocol.reference is ReferencePolicy.REMOVED
    assert benchmark.protocol.instruction == ""


def test_source_records_how_to_generate_it_again():
    benchmark = scenes(4, 24, gallery=210)
    source = benchmark.source
    again = scenes(source["seed"], source["queries"], gallery=source["gallery"])
    assert again.fingerprint == benchmark.fingerprint
    assert source["license"] == "Apache-2.0"


def test_reference_is_never_the_target_and_nothing_had_to_be_repaired(benchmark):
    assert all(q.reference not in q.targets for q in benchmark.queries)
    assert benchmark.findings == ()


def test_kinds_and_positions_are_shuffled(benchmark):
    groups = [q.group for q in benchmark.queries]
    assert len(set(groups[:60])) >= 5
    half = len(benchmark.gallery.ids) // 2
    targets = [benchmark.gallery.ids.index(q.targets[0]) < half for q in benchmark.queries]
    assert 0.4 < np.mean(targets) < 0.6


def test_gallery_too_small_for_the_queries_is_an_error():
    with pytest.raises(BenchmarkError, match="gallery of 300 images"):
        scenes(1, 600, gallery=300)


def test_too_few_queries_for_all_kinds_is_an_error():
    with pytest.raises(BenchmarkError, match="3 queries are too few"):
        scenes(1, 3)


# --- every synthetic query, checked on the scenes by code of its own


def test_n_text_counts_the_images_that_fulfill_the_text(synthetic_set):
    answerable = set(QueryKind) - {QueryKind.INVALID_TARGET, QueryKind.INVALID_TEXT}
    for made in of_kind(synthetic_set, *answerable):
        found = fitting(synthetic_set, made)
        assert made.target in found
        assert made.n_text == len(found)


def test_full_descriptions_fit_the_target_alone_or_nearly(synthetic_set):
    full = [p for p in of_kind(synthetic_set, QueryKind.TEXT_SHORTCUT) if p.edit == "full"]
    assert len(full) == 60
    assert {p.n_text for p in full} <= {1, 2}  # a later target may fit too


def test_partial_descriptions_fit_a_few_images(synthetic_set):
    partial = [p for p in of_kind(synthetic_set, QueryKind.TEXT_SHORTCUT) if p.edit == "partial"]
    assert len(partial) == 60
    assert all(1 <= p.n_text <= synthetic.MAX_PARTIAL + 2 for p in partial)
    assert {2, 3, 4} <= {p.n_text for p in partial}


def test_references_of_text_shortcuts_and_broad_queries_are_unrelated_to_the_target(synthetic_set):
    for made in of_kind(synthetic_set, QueryKind.TEXT_SHORTCUT, QueryKind.TOO_BROAD):
        reference, target = synthetic_set.scenes[made.reference], synthetic_set.scenes[made.target]
        cells = sum(a != b for a, b in zip(reference.cells, target.cells, strict=True))
        assert cells + (reference.background != target.background) >= 3


def test_image_shortcuts_have_their_target_next_to_the_reference(synthetic_set):
    for made in of_kind(synthetic_set, QueryKind.IMAGE_SHORTCUT):
        reference, target = synthetic_set.scenes[made.reference], synthetic_set.scenes[made.target]
        changed = [p for p in range(9) if reference.cells[p] != target.cells[p]]
        assert reference.background == target.background
        assert len(changed) == {"same": 0, "move": 2}.get(made.edit, 1)


def test_image_shortcuts_have_as_many_near_duplicates_as_recorded(synthetic_set):
    copies = Counter(synthetic_set.scenes)
    for made in of_kind(synthetic_set, QueryKind.IMAGE_SHORTCUT):
        same = 1 if made.edit == "same" else 0
        # The scene's images are the reference, its near-duplicates and, for `same`, the target.
        assert copies[synthetic_set.scenes[made.reference]] == 1 + made.n_near + same
        assert made.n_near <= 6


def test_composed_queries_stand_behind_distractors_in_both_unimodal_rankings(synthetic_set):
    copies = Counter(synthetic_set.scenes)
    alike = Counter(without_sizes(scene) for scene in synthetic_set.scenes)
    for made in of_kind(
        synthetic_set, QueryKind.COMPOSITION_REQUIRED, QueryKind.INVALID_TARGET, QueryKind.INVALID_TEXT
    ):
        reference = synthetic_set.scenes[made.reference]
        assert copies[reference] == 1 + 12
        # Besides the distractors, only a chance sibling or another reference may differ from it in sizes alone.
        assert 12 <= made.n_near <= alike[without_sizes(reference)] - 1 <= made.n_near + 1
        assert made.n_text >= synthetic.MIN_TEXT_DISTRACTORS


def without_sizes(scene: world.Scene) -> tuple[int, ...]:
    return (scene.background, *((cell + 1) // 2 for cell in scene.cells))


def test_outcome_of_a_composed_query_is_neither_the_reference_nor_a_resized_copy(synthetic_set):
    for made in of_kind(synthetic_set, QueryKind.COMPOSITION_REQUIRED):
        reference, target = synthetic_set.scenes[made.reference], synthetic_set.scenes[made.target]
        assert reference != target
        assert without_sizes(reference) != without_sizes(target)
        assert synthetic_set.scenes.count(target) == 1


def test_broad_queries_are_answered_by_many_images(synthetic_set):
    assert all(p.n_text > 200 for p in of_kind(synthetic_set, QueryKind.TOO_BROAD))


def test_invalid_targets_do_not_fulfill_what_the_text_says(synthetic_set):
    invalid = of_kind(synthetic_set, QueryKind.INVALID_TARGET)
    assert {p.edit for p in invalid} == {"sibling", "elsewhere"}
    for made in invalid:
        target = synthetic_set.scenes[made.target]
        assert not made.claims or not all(says(target, claim) for claim in made.claims)


def test_garbled_texts_hold_no_word_of_the_vocabulary_longer_than_three_letters(synthetic_set):
    words = set(language.vocabulary())
    garbled = [p for p in of_kind(synthetic_set, QueryKind.INVALID_TEXT) if p.edit == "garbled"]
    readable = [w for p in garbled for w in p.text.split() if w in words and len(w) > 3]
    # A shuffle gives the word itself back now and then: 1 in 4! for four letters, before a letter is added.
    assert len(readable) <= 0.05 * sum(len(p.text.split()) for p in garbled)


def test_mismatched_texts_contradict_their_target(synthetic_set):
    mismatched = [p for p in of_kind(synthetic_set, QueryKind.INVALID_TEXT) if p.edit == "mismatched"]
    assert mismatched
    for made in mismatched:
        assert made.claims
        assert not all(says(synthetic_set.scenes[made.target], claim) for claim in made.claims)


# --- the expected label at a cutoff


@pytest.mark.parametrize(
    ("n_text", "k", "label"),
    [(1, 1, "shortcut"), (6, 10, "shortcut"), (6, 6, "shortcut"), (6, 5, None)],
)
def test_text_shortcut_is_certain_once_all_fitting_images_are_in_the_top(n_text, k, label):
    assert expected_label(query("text_shortcut", n_text, 2998), k) == label


@pytest.mark.parametrize(("n_near", "k", "label"), [(0, 1, "shortcut"), (6, 7, "shortcut"), (6, 6, None)])
def test_image_shortcut_is_certain_once_near_duplicates_and_target_are_in_the_top(n_near, k, label):
    assert expected_label(query("image_shortcut", 2999, n_near), k) == label


@pytest.mark.parametrize(
    ("n_text", "n_near", "k", "label"),
    [
        (50, 12, 10, "composition_required"),
        (50, 12, 12, "composition_required"),  # 50 >= 4 * 12
        (50, 20, 13, None),  # 50 < 4 * 13
        (90, 12, 13, None),  # 12 near-duplicates leave one place in the top 13
        (50, 20, 50, "shortcut"),  # text alone reaches the target by rank 50
    ],
)
def test_composition_is_required_while_distractors_fill_the_top(n_text, n_near, k, label):
    assert expected_label(query("composition_required", n_text, n_near), k) == label


@pytest.mark.parametrize("kind", ["too_broad", "invalid_target", "invalid_text"])
def test_queries_that_nothing_answers_stay_unresolved(kind):
    assert expected_label(query(kind, 2998, 12), 10) == "unresolved"


def test_expected_label_decides_every_query_at_ten(benchmark):
    found = Counter(expected_label(q, 10) for q in benchmark.queries)
    assert found == {"shortcut": 240, "composition_required": 210, "unresolved": 150}


def test_expected_label_leaves_composition_to_chance_once_the_distractors_are_exhausted(benchmark):
    composed = [q for q in benchmark.queries if q.group == "composition_required"]
    assert {expected_label(q, 21) for q in composed} == {None}


def test_expected_label_of_a_query_from_elsewhere_is_an_error():
    with pytest.raises(BenchmarkError, match="'q-0000' is not one of the benchmark"):
        expected_label(dataclasses.replace(query("", 0, 0), details={}), 10)


# --- held out from training


def test_every_benchmark_scene_is_held_out(synthetic_set):
    assert all(world.is_held_out(scene) for scene in synthetic_set.scenes)


def test_no_training_scene_is_held_out():
    rng = random.Random(11)
    mixture = Mixture(families=20, captions=20, views=20)
    for _ in range(10):
        examples, shown = draw_batch(rng, mixture)
        references = [example.image for example in examples if not isinstance(example.image, NoImage)]
        trained = [*shown, *references, *(example.target for example in examples)]
        assert not any(world.is_held_out(scene) for scene in trained)


def test_a_quarter_of_all_scenes_is_held_out():
    rng = random.Random(0)
    share = np.mean([world.is_held_out(world.random_scene(rng)) for _ in range(8000)])
    assert share == pytest.approx(0.25, abs=0.02)  # four standard deviations


def test_resizing_does_not_move_a_scene_between_training_and_benchmark():
    rng = random.Random(0)
    for scene in (world.random_scene(rng) for _ in range(500)):
        obj = world.scene_objects(scene)[0]
        changed = world.with_cells(scene, {obj.place: world.code(obj.shape, obj.color, 1 - obj.size)})
        assert world.is_held_out(changed) == world.is_held_out(scene)


# --- language


def test_every_text_is_made_of_the_vocabulary():
    words = set(language.vocabulary())
    rng = random.Random(5)
    for _ in range(1000):
        scene = world.random_scene(rng)
        texts = [language.random_edit(rng, scene).text, language.caption(rng, scene, detail=0.5)[0]]
        assert set(" ".join(texts).replace(",", " , ").split()) <= words


def test_outcome_of_an_edit_fulfills_its_claims():
    rng = random.Random(6)
    for _ in range(1000):
        edit = language.random_edit(rng, world.random_scene(rng))
        assert all(says(edit.scene, claim) for claim in edit.claims)


def test_claims_of_a_scene_are_those_it_fulfills():
    rng = random.Random(7)
    scene, other = world.random_scene(rng, 3), world.random_scene(rng, 3)
    own = set(language.iter_claims(scene))
    assert all(says(scene, claim) for claim in own)
    assert all((claim in own) == says(scene, claim) for claim in language.iter_claims(other))


def test_referring_phrase_names_one_object_of_the_scene():
    rng = random.Random(8)
    for _ in range(500):
        scene = world.random_scene(rng)
        obj = rng.choice(world.scene_objects(scene))
        name = language._refer(rng, scene, obj)
        matching = [
            other
            for other in world.scene_objects(scene)
            if name.shape in (None, other.shape)
            and name.color in (None, other.color)
            and name.place in (None, other.place)
        ]
        assert matching == [obj]


# --- rendering


def test_gallery_images_decode_to_small_rgb_squares(benchmark):
    for image_id in islice(benchmark.gallery.ids, 20):
        decoded = decode(benchmark.gallery.images[image_id])
        assert decoded.image.size == (64, 64)
        assert not decoded.flags


def test_two_images_of_one_scene_differ_in_jitter_alone():
    scene = world.Scene(0, (world.code(1, 0, 1), *[0] * 8))
    one, other = world.render([scene, scene], np.random.default_rng(0)).astype(int)
    assert (one != other).any()
    # The corner far from the big red square shows the white background in both, the center of its cell shows red.
    assert np.abs(one[40:, 40:].mean((0, 1)) - other[40:, 40:].mean((0, 1))).max() < 25
    for image in (one, other):
        red, green, blue = image[10:14, 10:14].mean((0, 1))
        assert red > 2 * max(green, blue)


def test_render_puts_an_object_into_its_cell():
    for place in range(9):
        cells = [0] * 9
        cells[place] = world.code(0, 6, 1)  # a big black circle on white
        image = world.render([world.Scene(0, tuple(cells))], np.random.default_rng(place))[0].mean(-1)
        row, column = np.argwhere(image < 90).mean(0)
        assert (int(row // 21.4), int(column // 21.4)) == divmod(place, 3)


def test_scenes_needs_no_torch():
    import subprocess
    import sys

    code = "import sys, circus_bench.sources.scenes as s; s.scenes(1, 20, gallery=200); print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
