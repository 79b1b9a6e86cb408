"""The annotation app over HTTP: who sees what, what is stored, and what is refused."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image
from sqlalchemy.exc import OperationalError
from support.annotation import KNOWN, STRATA, benchmark, make_study

from circus_bench.benchmark import Benchmark, Gallery
from circus_bench.errors import MismatchError
from circus_bench.rmir.tsr_validity import ANSWERS_RUBRIC
from circus_bench.sources.scenes import QueryKind
from circus_bench.validation.annotation_log import AnnotationLog
from circus_bench.validation.annotations import AnnotatorRole, write_annotations
from circus_bench.validation.app import create_app, sign_in_link
from circus_bench.validation.app.images import THUMBNAIL, StudyImages
from circus_bench.validation.app.routes import router
from circus_bench.validation.app.security import AttemptLimit
from circus_bench.validation.app.worklist import Worklists
from circus_bench.validation.log_database import AnnotationLogError
from circus_bench.validation.rubric import load_rubric
from circus_bench.validation.study import Study

ITEMS = 6


@dataclasses.dataclass
class Site:
    """A running app and its store."""

    app: Any
    log: AnnotationLog
    study: Study

    def visitor(self) -> Visitor:
        """Somebody who is not signed in."""
        return Visitor(TestClient(self.app, base_url="http://127.0.0.1:8000"))

    def person(self, name: str, role: str = "rater") -> Visitor:
        """Somebody who is."""
        visitor = self.visitor()
        answer = visitor.post("/sign-in", {"token": self.log.invite(name, role)})
        assert answer.status_code == 200, answer.text
        return visitor

    def name(self, place: int) -> str:
        """What addresses call an item."""
        return Worklists(self.study, self.log).name(self.study.items[place].id)


class Visitor:
    """A browser without a screen."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.csrf = self._csrf("/sign-in")

    def get(self, path: str, **headers: str) -> Any:
        return self.client.get(path, headers=headers, follow_redirects=False)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return self.client.post(path, json=body, headers={"X-CSRF-Token": self.csrf})

    def next(self) -> dict[str, Any]:
        """The next item; empty at the end."""
        found: dict[str, Any] = self.get("/items/next").json()
        return found

    def judge(self, item: str, **changes: Any) -> Any:
        """Call an item sound, but for the changes."""
        return self.post("/judgements", answer(item, **changes))

    def finish(self, **changes: Any) -> list[Any]:
        """Judge everything that is left."""
        answers = []
        while item := self.next():
            answers.append(self.judge(item["item"], **changes))
        return answers

    def _csrf(self, path: str) -> str:
        found = re.search(r'<meta name="csrf" content="(\w+)">', self.client.get(path).text)
        assert found
        return found[1]


def answer(item: str, **changes: Any) -> dict[str, Any]:
    """The body of an annotation."""
    follow_ups = {} if changes.get("flags") else {"text_alone": False, "image_alone": False}
    sound = {"sound": not changes.get("flags"), "answers": follow_ups}
    return {"event": str(uuid.uuid4()), "item": item, "replaces": 0, "seconds": 3.5, **sound, **changes}


Make = Callable[..., Site]


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Make]:
    """`make_site(study)`: an app with a new database."""
    stores = []

    def make(study: Study) -> Site:
        log = AnnotationLog(study, tmp_path / f"{len(stores)}.sqlite")
        stores.append(log)
        return Site(create_app(study, {"scenes": benchmark()}, log), log, study)

    yield make
    for log in stores:
        log.close()


@pytest.fixture
def site(make_site: Make) -> Site:
    return make_site(make_study(ITEMS))


class TestSignIn:
    def test_a_token_buys_a_cookie_that_scripts_and_other_sites_do_not_get(self, site: Site) -> None:
        visitor = site.visitor()
        given = visitor.post("/sign-in", {"token": site.log.invite("ann")}).headers["set-cookie"].lower()
        assert "httponly" in given
        assert "samesite=strict" in given
        assert visitor.get("/").headers["location"] == "/judge"

    def test_behind_https_the_cookie_is_secure(self, site: Site) -> None:
        visitor = Visitor(TestClient(site.app, base_url="https://example.org"))
        answered = visitor.post("/sign-in", {"token": site.log.invite("ann")})
        assert "; secure" in answered.headers["set-cookie"].lower()

    def test_the_link_has_its_token_where_no_server_sees_it(self) -> None:
        assert sign_in_link("abc", "https://example.org/") == "https://example.org/sign-in#abc"

    def test_a_wrong_token_is_refused(self, site: Site) -> None:
        visitor = site.visitor()
        assert visitor.post("/sign-in", {"token": "guess"}).status_code == 401
        assert visitor.get("/items/next").status_code == 401

    def test_guessing_is_slowed_down(self, site: Site) -> None:
        visitor = site.visitor()
        statuses = [visitor.post("/sign-in", {"token": f"guess {n}"}).status_code for n in range(12)]
        assert statuses == [401] * 10 + [429] * 2
        refused = visitor.post("/sign-in", {"token": site.log.invite("ann")})
        assert int(refused.headers["retry-after"]) <= 61

    def test_the_limit_forgets_after_its_window(self) -> None:
        now = [0.0]
        limit = AttemptLimit(2, seconds=60, clock=lambda: now[0])
        for now[0] in (0.0, 10.0):
            limit.failed("a")
        assert [limit.wait("a"), limit.wait("b")] == [51, 0]  # the first failure is 10 s old: 50 s are left, rounded up
        now[0] = 60.0
        assert limit.wait("a") == 0

    def test_signing_out_forgets_the_cookie(self, site: Site) -> None:
        ann = site.person("ann")
        ann.post("/sign-out", {})
        assert ann.get("/items/next").status_code == 401

    def test_pages_lead_to_the_sign_in_page(self, site: Site) -> None:
        answered = site.visitor().get("/judge", accept="text/html")
        assert (answered.status_code, answered.headers["location"]) == (303, "/sign-in")


class TestProtection:
    def test_every_post_needs_an_anti_forgery_token(self, site: Site) -> None:
        ann = site.person("ann")
        for path in ("/sign-in", "/sign-out", "/judgements", "/later"):
            for csrf in ("", "0" * 64, "ä"):
                headers = {"X-CSRF-Token": csrf.encode()}
                assert ann.client.post(path, json={}, headers=headers).status_code == 403, path
        assert ann.get("/items/next").status_code == 200

    def test_no_post_is_forgotten_above(self) -> None:
        posts = {route.path for route in router.routes if not {*route.methods} <= {"GET", "HEAD"}}
        assert posts == {"/sign-in", "/sign-out", "/judgements", "/later"}

    @pytest.mark.parametrize("path", ["/sign-in", "/judge?begin", "/static/judge.js", "/items/next", "/nowhere"])
    def test_every_answer_has_the_headers(self, site: Site, path: str) -> None:
        headers = site.person("ann").get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; ")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"

    def test_no_page_has_a_script_or_a_style_of_its_own(self, site: Site) -> None:
        pages = [site.person("ann").get(path).text for path in ("/sign-in", "/instructions", "/judge?begin", "/later")]
        pages.append(site.person("olga", "owner").get("/dashboard").text)
        for html in pages:
            assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:", html)

    def test_a_large_body_is_refused(self, site: Site) -> None:
        ann = site.person("ann")
        assert ann.judge(ann.next()["item"], note="x" * 70_000).status_code == 413

    def test_there_is_no_description_of_the_interface(self, site: Site) -> None:
        assert [site.visitor().get(path).status_code for path in ("/docs", "/redoc", "/openapi.json")] == [404] * 3

    @pytest.mark.parametrize("path", ["..%2fserver.py", "%2e%2e/server.py", "%2fetc%2fpasswd"])
    def test_static_files_are_those_of_the_folder(self, site: Site, path: str) -> None:
        assert site.visitor().get(f"/static/{path}").status_code == 404


class TestImages:
    def test_an_image_is_the_benchmark_s_own_file(self, site: Site) -> None:
        ann, item = site.person("ann"), site.study.items[0]
        query = benchmark().queries[0]
        name = StudyImages(site.study, {"scenes": benchmark()}).name("scenes", query.reference)
        answered = ann.get(f"/images/{name}")
        assert item.query == query.id
        assert answered.content == benchmark().gallery.images[query.reference]
        assert answered.headers["content-type"] == "image/png"

    @pytest.mark.parametrize("name", ["scene-00001", "..%2f..%2fsetup.cfg", "%2fetc%2fpasswd", "0" * 20, "%00"])
    def test_nothing_else_can_be_had(self, site: Site, name: str) -> None:
        ann = site.person("ann")
        assert [ann.get(f"/{kind}/{name}").status_code for kind in ("images", "thumbnails")] == [404, 404]

    def test_images_need_a_sign_in(self, site: Site) -> None:
        address = site.person("ann").next()["images"][0]
        assert site.visitor().get(address).status_code == 401

    def test_what_browsers_do_not_show_becomes_png_and_large_images_small(self) -> None:
        images, name = _one_image(lambda image: _file(image, "BMP"))
        original, small = images.get(name), images.get(name, small=True)
        assert original is not None
        assert small is not None
        assert original.media_type == "image/png"
        assert Image.open(io.BytesIO(original.data)).size == (1000, 500)
        assert (small.media_type, Image.open(io.BytesIO(small.data)).size) == ("image/jpeg", (THUMBNAIL, THUMBNAIL / 2))

    @pytest.mark.parametrize("data", [b"", b"<script>alert(1)</script>", b"\xff\xd8\xff<script>"])
    def test_a_file_that_is_no_image_is_not_served(self, data: bytes) -> None:
        images, name = _one_image(lambda _: data)
        assert [images.get(name), images.get(name, small=True)] == [None, None]


class TestJudging:
    def test_an_annotation_is_acknowledged_with_the_next_item(self, site: Site) -> None:
        ann = site.person("ann")
        first = ann.next()["item"]
        answered = ann.judge(first, flags=["target"], reasons=["target.mismatch"], note=" blurred ").json()
        assert answered["next"] == ann.next()["item"] != first
        assert answered["version"] == 1
        (stored,) = site.log.annotations()
        assert (stored.rater, stored.label, stored.reasons) == ("ann", "INVALID_TARGET_IMAGE", ("target.mismatch",))
        assert (stored.note, stored.seconds, stored.role) == ("blurred", 3.5, AnnotatorRole.RATER)

    def test_items_come_in_the_order_of_the_study(self, site: Site) -> None:
        site.person("ben").finish()
        assert [j.item for j in site.log.annotations()] == list(site.study.assignments["ben"])

    def test_a_repeated_delivery_is_acknowledged_again(self, site: Site) -> None:
        ann = site.person("ann")
        body = answer(ann.next()["item"])
        statuses = [ann.post("/judgements", body).status_code for _ in range(3)]
        assert statuses == [200] * 3
        assert site.log.count() == 1

    def test_a_conflict_shows_what_is_stored_and_can_be_replaced(self, site: Site) -> None:
        ann = site.person("ann")
        item = ann.next()["item"]
        ann.judge(item, note="the first tab")
        refused = ann.judge(item, flags=["text"])
        assert refused.status_code == 409
        assert "the first tab" in refused.json()["stored"]["html"]
        assert ann.judge(item, flags=["text"], replaces=refused.json()["stored"]["version"]).status_code == 200
        assert [j.label for j in site.log.annotations()] == ["VALIDATED", "INVALID_TEXT_QUERY"]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"sound": False},
            {"sound": True, "flags": ["text"]},
            {"flags": ["nonsense"]},
            {"flags": ["text"], "reasons": ["target.mismatch"]},
            {"alternatives": ["scene-00001"]},
            {"event": "not an id"},
            {"seconds": -1},
            {"replaces": 4},
            {"rater": "ben"},
            {"role": "adjudicator"},
            {"label": "VALIDATED"},
        ],
    )
    def test_a_body_that_makes_no_sense_is_refused(self, site: Site, wrong: dict[str, Any]) -> None:
        ann = site.person("ann")
        assert ann.judge(ann.next()["item"], **wrong).status_code == 422
        assert site.log.count() == 0

    def test_half_a_character_in_a_note_is_refused(self, site: Site) -> None:
        ann = site.person("ann")
        body = json.dumps(answer(ann.next()["item"], note="a\ud83d"))  # with an escape: UTF-8 has no such character
        headers = {"X-CSRF-Token": ann.csrf, "Content-Type": "application/json"}
        assert ann.client.post("/judgements", content=body, headers=headers).status_code == 422
        assert site.log.count() == 0

    @pytest.mark.parametrize("wrong", [{"replaces": 4}, {"reasons": ["target.mismatch"]}, {"flags": ["nothing"]}])
    def test_a_refusal_does_not_tell_the_item_s_id(self, site: Site, wrong: dict[str, Any]) -> None:
        ann = site.person("ann")
        refused = ann.judge(ann.next()["item"], **wrong)
        assert refused.status_code == 422
        assert refused.json()["error"]
        assert not [item.id for item in site.study.items if item.id in refused.text or item.query in refused.text]

    def test_clicked_candidates_are_stored_by_id_and_targets_are_none(self, site: Site) -> None:
        ann = site.person("ann")
        item = site.study.items[0]
        (target,) = benchmark().queries[0].targets
        images = StudyImages(site.study, {"scenes": benchmark()})
        other = next(image for image in item.panel if image != target)
        clicked = [images.name("scenes", image) for image in (target, other)]
        assert all(name in ann.next()["html"] for name in clicked)
        assert ann.judge(ann.next()["item"], alternatives=clicked).status_code == 200
        assert site.log.annotations()[0].alternatives == (other,)

    def test_an_item_put_off_comes_last(self, site: Site) -> None:
        ann = site.person("ann")
        first = ann.next()["item"]
        for _ in range(2):  # the second one is the same delivery again
            answered = ann.post("/later", {"event": str(uuid.UUID(int=7)), "item": first}).json()
        assert "1 for later" in answered["progress"]
        assert first not in ann.get("/items/ahead").text
        assert f"/judge/{first}" in ann.get("/later").text
        ann.finish()
        assert site.log.annotations()[-1].item == site.study.assignments["ann"][0]
        assert f"/judge/{first}" not in ann.get("/later").text

    def test_undo_brings_back_the_item_before_with_its_answer(self, site: Site) -> None:
        ann = site.person("ann")
        first = ann.next()["item"]
        assert ann.get(f"/items/before?item={first}").json() == {}
        ann.judge(first, note="to be mended")
        before = ann.get(f"/items/before?item={ann.next()['item']}").json()
        assert before["item"] == first
        assert "to be mended" in before["html"]
        assert 'data-replaces="1"' in before["html"]

    def test_the_end_is_a_page_of_its_own(self, site: Site) -> None:
        ann = site.person("ann")
        assert [a.json()["next"] is None for a in ann.finish()] == [False] * (ITEMS - 1) + [True]
        assert "All 6 annotations are saved" in ann.get("/judge").text

    def test_a_newcomer_reads_the_instructions_first(self, site: Site) -> None:
        ann = site.person("ann")
        assert ann.get("/judge").headers["location"] == "/instructions"
        ann.judge(ann.next()["item"])
        assert ann.get("/judge").status_code == 200

    def test_when_the_database_fails_nothing_is_acknowledged(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise OperationalError("INSERT", {}, Exception("disk full"))

        ann = site.person("ann")
        item = ann.next()["item"]
        with monkeypatch.context() as patch:
            patch.setattr(site.log, "record", fail)
            assert ann.judge(item).status_code == 503
        assert site.log.count() == 0


class TestTraining:
    @pytest.fixture
    def site(self, make_site: Make) -> Site:
        return make_site(make_study(2, training=2, checks=1))

    def test_training_comes_first_with_feedback(self, site: Site) -> None:
        ann = site.person("ann")
        right = ann.judge(ann.next()["item"], flags=["breadth"]).json()["feedback"]
        wrong = ann.judge(ann.next()["item"], flags=["text"]).json()["feedback"]
        assert "As a careful rater says." in right
        assert "A careful rater says something else." in wrong
        assert "Too broad: 10 or more other images answer it" in wrong
        assert [j.item for j in site.log.annotations()] == [item.id for item in site.study.items if item.training]

    def test_training_does_not_count(self, site: Site) -> None:
        ann = site.person("ann")
        for _ in range(2):
            progress = ann.judge(ann.next()["item"]).json()["progress"]
        assert "<b>0</b> of 3" in progress  # two items and a check item

    def test_other_items_have_no_feedback(self, site: Site) -> None:
        feedback = [a.json()["feedback"] is None for a in site.person("ann").finish()]
        assert feedback == [False, False, True, True, True]


class TestBlindness:
    def test_nothing_that_a_rater_gets_tells_stratum_kind_rank_or_known_label(self, make_site: Make) -> None:
        site = make_site(make_study(3, training=1, checks=2))
        ann = site.person("ann")
        site.person("ben").finish(note="ben was here", flags=["text"])
        received = [ann.get(path).text for path in ("/instructions", "/judge?begin", "/later", "/items/ahead")]
        while item := ann.next():
            received += [str(item), ann.get(f"/judge/{item['item']}").text, ann.judge(item["item"]).text]
            received += [ann.get(f"/items/before?item={item['item']}").text, ann.judge(item["item"]).text]
        secrets = [*STRATA, "composition_required", "unresolved", "shortcut", "stratum", "inclusion", KNOWN, "check"]
        secrets += [kind.value for kind in QueryKind if kind.value != "too_broad"]
        secrets += ["ben", *(item.id for item in site.study.items), *(item.query for item in site.study.items)]
        text = "\n".join(received).replace("checkbox", "").replace("checked", "")
        assert [secret for secret in secrets if re.search(rf"(?<![\w-]){re.escape(secret)}(?![\w-])", text)] == []

    def test_each_rater_sees_the_candidates_in_an_order_of_their_own(self, site: Site) -> None:
        item = site.person("ann").next()["item"]
        orders = [site.person(name).get(f"/items/{item}").json()["images"] for name in ("ann", "ben")]
        assert orders[0] != orders[1]
        assert sorted(orders[0]) == sorted(orders[1])

    def test_items_of_others_are_as_if_they_were_not(self, make_site: Make) -> None:
        study = make_study(4)
        ids = [item.id for item in study.items]
        site = make_site(dataclasses.replace(study, assignments={"ann": (*ids[:2],), "ben": (*ids[2:],)}))
        ann, of_ben = site.person("ann"), site.person("ben").next()["item"]
        statuses = [ann.get(f"/items/{name}").status_code for name in (of_ben, "nothing")]
        statuses += [ann.get(f"/judge/{of_ben}").status_code, ann.get(f"/items/before?item={of_ben}").status_code]
        statuses += [ann.judge(of_ben).status_code, ann.post("/later", answer(of_ben)).status_code]
        assert statuses == [404, 404, 404, 404, 404, 422]
        assert site.log.count() == 0

    @pytest.mark.parametrize("path", ["/dashboard", "/judgements.jsonl"])
    @pytest.mark.parametrize(("name", "role"), [("ann", "rater"), ("cleo", "adjudicator")])
    def test_the_owner_s_pages_are_the_owner_s(self, site: Site, path: str, name: str, role: str) -> None:
        assert site.person(name, role).get(path).status_code == 403

    def test_owners_do_not_judge(self, site: Site) -> None:
        item = site.person("ann").next()["item"]
        olga = site.person("olga", "owner")
        assert [olga.judge(item).status_code, olga.get("/items/next").status_code] == [403, 403]

    def test_a_text_from_outside_is_only_text(self, make_site: Make) -> None:
        site = make_site(make_study(1))
        ann = site.person("ann")
        ann.judge(ann.next()["item"], note="<img src=x onerror=alert(1)>")
        html = ann.get(f"/judge/{site.name(0)}").text
        assert "<img src=x" not in html
        assert "&lt;img src=x" in html


class TestAdjudication:
    @pytest.fixture
    def disputed(self, site: Site) -> Site:
        ann, ben = site.person("ann"), site.person("ben")
        for number in range(ITEMS):
            ann.judge(ann.next()["item"], **({"flags": ["target"], "note": "it is green"} if number == 2 else {}))
        ben.finish(seconds=4)
        return site

    def test_only_disputed_items_come_up(self, disputed: Site) -> None:
        cleo = disputed.person("cleo", "adjudicator")
        answers = cleo.finish(flags=["target"])
        assert len(answers) == 1
        decision = disputed.log.annotations()[-1]
        assert (decision.item, decision.role) == (disputed.study.items[2].id, AnnotatorRole.ADJUDICATOR)

    def test_an_item_is_not_disputed_before_all_its_raters_have_judged(self, site: Site) -> None:
        site.person("ann").finish(flags=["target"])
        assert site.person("cleo", "adjudicator").next() == {}

    def test_raters_are_shown_without_their_names(self, disputed: Site) -> None:
        html = disputed.person("cleo", "adjudicator").next()["html"]
        assert "it is green" in html
        assert "Rater 1" in html
        assert "Rater 2" in html
        assert not re.search(r"\b(ann|ben)\b", html)

    def test_an_adjudicator_decides_on_nothing_else(self, disputed: Site) -> None:
        cleo = disputed.person("cleo", "adjudicator")
        assert cleo.judge(disputed.name(0)).status_code == 404


class TestDashboard:
    def test_progress_agreement_and_speed_are_shown(self, site: Site) -> None:
        site.person("ann").finish()
        ben = site.person("ben")
        ben.judge(ben.next()["item"], flags=["text"])
        html = site.person("olga", "owner").get("/dashboard").text
        assert "6 of 6" in html
        assert "1 of 6" in html
        assert "3.5 s" in html
        assert "7 annotations in the log" in html
        assert "undefined: too few items" in html  # one item judged twice tells nothing of others

    def test_a_new_study_has_a_dashboard_too(self, site: Site) -> None:
        assert "No item has two annotations yet" in site.person("olga", "owner").get("/dashboard").text

    def test_the_log_can_be_downloaded(self, site: Site, tmp_path: Path) -> None:
        site.person("ann").finish()
        write_annotations(tmp_path / "log.jsonl", site.log.annotations())
        answered = site.person("olga", "owner").get("/judgements.jsonl")
        assert answered.text == (tmp_path / "log.jsonl").read_text()
        assert "attachment" in answered.headers["content-disposition"]


class TestSetUp:
    def test_a_rubric_with_a_key_of_the_app_is_refused(self, make_site: Make) -> None:
        study = make_study(1)
        step = dataclasses.replace(study.rubric.steps[0], key="u")
        rubric = dataclasses.replace(study.rubric, steps=(step, *study.rubric.steps[1:]))
        with pytest.raises(AnnotationLogError, match="uses keys that the app needs itself"):
            make_site(dataclasses.replace(study, rubric=rubric))

    def test_a_missing_benchmark_is_refused(self, site: Site) -> None:
        with pytest.raises(MismatchError, match="needs benchmarks that were not given"):
            create_app(site.study, {}, site.log)

    def test_a_missing_query_is_refused(self, site: Site) -> None:
        smaller = dataclasses.replace(benchmark(), queries=benchmark().queries[1:])
        with pytest.raises(MismatchError, match="has items that its benchmarks lack"):
            create_app(site.study, {"scenes": smaller}, site.log)

    def test_a_benchmark_without_images_is_refused(self, site: Site) -> None:
        bare = dataclasses.replace(benchmark(), gallery=Gallery(benchmark().gallery.ids))
        with pytest.raises(MismatchError, match="join its images first"):
            create_app(site.study, {"scenes": bare}, site.log)

    def test_a_rubric_of_one_step_is_shown(self, make_site: Make) -> None:
        study = make_study(1)
        rubric = dataclasses.replace(study.rubric, steps=study.rubric.steps[-1:], follow_ups=())
        ann = make_site(dataclasses.replace(study, rubric=rubric)).person("ann")
        assert "Too broad" in ann.get("/instructions").text
        assert ann.judge(ann.next()["item"], answers={}).status_code == 200

    def test_the_instructions_say_what_the_rubric_asks(self, make_site: Make) -> None:
        study, answers = make_study(1), load_rubric(ANSWERS_RUBRIC)
        of_answers = dataclasses.replace(study, rubric=answers)
        pages = [make_site(each).person("ann").get("/instructions").text for each in (study, of_answers)]
        for only_circus in ("a text that modifies it", "From 10 on", "Worked examples"):
            assert [only_circus in html for html in pages] == [True, False], only_circus
        assert answers.intro in pages[1]

    def test_only_a_rubric_that_asks_for_breadth_has_a_limit_of_candidates(self, make_site: Make) -> None:
        study = make_study(1)
        of_answers = dataclasses.replace(study, rubric=load_rubric(ANSWERS_RUBRIC))
        pages = [make_site(each).person("ann").next()["html"] for each in (study, of_answers)]
        assert ["would be too many" in html for html in pages] == [True, False]


def _file(image: Image.Image, file_format: str) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format)
    return file.getvalue()


def _one_image(data_of: Callable[[Image.Image], bytes]) -> tuple[StudyImages, str]:
    """The images of a study, where the first query's reference is a file of our own."""
    study = make_study(1)
    reference = benchmark().queries[0].reference
    assert benchmark().gallery.images is not None
    images = {**benchmark().gallery.images, reference: data_of(Image.new("RGB", (1000, 500), "red"))}
    changed: Benchmark = dataclasses.replace(benchmark(), gallery=Gallery(benchmark().gallery.ids, images))
    images = StudyImages(study, {"scenes": changed})
    return images, images.name("scenes", reference)
