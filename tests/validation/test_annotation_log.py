"""The annotation log: every acknowledged annotation is in the log exactly once, whatever happens around it."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError
from support.annotation import KNOWN, make_study
from support.loopback_hub import Blob, LoopbackHub

from circus_bench.errors import FormatError, MismatchError
from circus_bench.validation.annotation_log import Access, AnnotationLog, DeliveryOutcome, EventKind, Person
from circus_bench.validation.annotations import Annotation, AnnotatorRole, read_annotations, write_annotations
from circus_bench.validation.app import open_log
from circus_bench.validation.backup import Backups
from circus_bench.validation.log_database import AnnotationLogError
from circus_bench.validation.study import Study

ANN = Person("ann", Access.RATER)
STUDY = make_study(6, training=1)
ITEM = STUDY.items[1].id

Open = Callable[[], AnnotationLog]


POSTGRESQL = os.environ.get("CIRCUS_POSTGRESQL")
"""SQLAlchemy's URL of a PostgreSQL database that may be emptied; where it is set, the tests are run on that as well."""


@pytest.fixture(params=["sqlite", *(["postgresql"] if POSTGRESQL else [])])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new database."""
    if request.param == "sqlite":
        yield str(tmp_path / "judgements.sqlite")
        return
    from sqlalchemy import create_engine, text

    engine = create_engine(POSTGRESQL)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    yield POSTGRESQL
    engine.dispose()


@pytest.fixture
def log(database: str) -> Iterator[AnnotationLog]:
    opened = AnnotationLog(STUDY, database)
    yield opened
    opened.close()


def judged(item: str = ITEM, rater: str = "ann", *, event: str = "e1", **changes: object) -> Annotation:
    return dataclasses.replace(Annotation(item, rater, "VALIDATED", seconds=12.5, event=event), **changes)


def flagged(**changes: object) -> Annotation:
    return judged(**{"label": "INVALID_TARGET_IMAGE", "flags": ("target",), **changes})


class TestRecording:
    def test_an_annotation_is_acknowledged_as_the_log_has_it(self, log: AnnotationLog) -> None:
        given = flagged(reasons=("target.mismatch",), alternatives=STUDY.items[1].panel[:2], note="“no”")
        receipt = log.record(given)
        assert receipt.outcome is DeliveryOutcome.STORED
        assert dataclasses.replace(receipt.annotation, time="") == given
        assert log.annotations() == [receipt.annotation]

    def test_a_repeated_delivery_is_acknowledged_again_and_stored_once(self, log: AnnotationLog) -> None:
        first = log.record(judged())
        again = log.record(judged())
        assert again.outcome is DeliveryOutcome.REPEATED
        assert again.annotation == first.annotation
        assert log.count() == 1

    def test_a_repeated_delivery_is_known_after_a_later_version(self, log: AnnotationLog) -> None:
        log.record(judged())
        log.record(flagged(event="e2", version=2))
        assert log.record(judged()).outcome is DeliveryOutcome.REPEATED

    def test_a_change_is_a_new_event_and_the_latest_one_counts(self, log: AnnotationLog) -> None:
        log.record(judged())
        log.record(flagged(event="e2", version=2))
        assert [j.version for j in log.annotations()] == [1, 2]
        assert log.by_item()[ITEM][0].label == "INVALID_TARGET_IMAGE"

    def test_a_conflict_is_answered_with_the_stored_annotation_and_changes_nothing(self, log: AnnotationLog) -> None:
        stored = log.record(judged()).annotation
        receipt = log.record(flagged(event="e2"))
        assert receipt.outcome is DeliveryOutcome.CONFLICT
        assert receipt.annotation == stored
        assert log.annotations() == [stored]

    def test_two_raters_of_an_item_do_not_conflict(self, log: AnnotationLog) -> None:
        log.record(judged())
        assert log.record(judged(rater="ben", event="e2")).outcome is DeliveryOutcome.STORED

    def test_a_version_that_replaces_nothing_is_refused(self, log: AnnotationLog) -> None:
        with pytest.raises(
            AnnotationLogError, match="version 3 replaces one that the log does not have; its last is 0"
        ):
            log.record(judged(version=3))

    def test_an_event_id_in_use_is_refused_for_another_annotation(self, log: AnnotationLog) -> None:
        log.record(judged())
        with pytest.raises(AnnotationLogError, match="'e1' is in use"):
            log.record(judged(rater="ben"))
        assert log.count() == 1

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (judged(item="scenes::nowhere"), "not an item"),
            (judged(rater="eve"), "not assigned"),
            (judged(label=KNOWN), "make the label 'VALIDATED'"),
            (flagged(flags=("target", "target")), "flags are repeated"),
            (judged(reasons=("target.mismatch",)), "reasons are unknown"),
            (flagged(answers={"text_alone": True}), "answers are unknown"),
            (judged(alternatives=("nowhere",)), "alternatives are unknown"),
            (judged(seconds=float("nan")), "nan seconds"),
            (judged(version=0), "version 0"),
            (judged(note="a\ud83d"), "a lone surrogate"),
        ],
    )
    def test_what_the_study_does_not_provide_for_is_refused(
        self, log: AnnotationLog, wrong: Annotation, message: str
    ) -> None:
        with pytest.raises(AnnotationLogError, match=message):
            log.record(wrong)
        assert log.count() == 0

    def test_adjudicators_have_versions_of_their_own(self, log: AnnotationLog) -> None:
        log.record(judged())
        decided = judged(rater="cleo", role=AnnotatorRole.ADJUDICATOR, event="e2")
        assert log.record(decided).outcome is DeliveryOutcome.STORED

    def test_writers_at_once_store_each_version_once(self, log: AnnotationLog) -> None:
        # Eight threads deliver the same 6 items of version 1: of each item one is stored, seven conflict.
        def deliver(thread: int) -> list[DeliveryOutcome]:
            return [log.record(judged(item.id, event=f"{thread} {item.id}")).outcome for item in STUDY.items[1:]]

        with ThreadPoolExecutor(8) as pool:
            outcomes = [outcome for found in pool.map(deliver, range(8)) for outcome in found]
        assert outcomes.count(DeliveryOutcome.STORED) == 6
        assert outcomes.count(DeliveryOutcome.CONFLICT) == 42
        assert log.count() == 6

    def test_one_delivery_by_many_threads_is_stored_once(self, log: AnnotationLog) -> None:
        barrier = threading.Barrier(8)

        def deliver(_: int) -> DeliveryOutcome:
            barrier.wait()
            return log.record(judged()).outcome

        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(deliver, range(8)))
        assert sorted(outcomes) == [DeliveryOutcome.REPEATED] * 7 + [DeliveryOutcome.STORED]
        assert log.count() == 1


class TestLog:
    @pytest.mark.parametrize("statement", ["UPDATE events SET rater = 'eve'", "DELETE FROM events"])
    def test_the_database_refuses_to_change_the_log(self, log: AnnotationLog, statement: str) -> None:
        log.record(judged())
        with pytest.raises(DBAPIError, match="append-only"), log._engine.begin() as connection:
            connection.exec_driver_sql(statement)
        assert log.annotations()[0].rater == "ann"

    def test_sqlite_writes_ahead_and_reaches_the_disk_with_every_commit(self, tmp_path: Path) -> None:
        log = AnnotationLog(STUDY, tmp_path / "a.sqlite")
        with log._engine.connect() as connection:
            pragmas = [
                connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")
            ]
        log.close()
        assert pragmas == ["wal", 2]  # 2 is FULL

    def test_a_database_of_another_study_is_refused(self, database: str) -> None:
        AnnotationLog(STUDY, database).close()
        with pytest.raises(MismatchError, match="another than 'drawn scenes', or the study was changed"):
            AnnotationLog(make_study(5), database)

    def test_a_database_that_cannot_be_opened_is_an_error_without_its_password(self) -> None:
        with pytest.raises(AnnotationLogError) as caught:
            AnnotationLog(STUDY, "nosuch://ann:secret@localhost/x")
        assert "secret" not in str(caught.value)

    def test_put_off_items_are_events_and_repeated_deliveries_count_once(self, log: AnnotationLog) -> None:
        for _ in range(2):
            log.put_off(ITEM, ANN, event_id="l1")
        log.record(judged())
        assert [step.kind for step in log.trail(ANN)] == [EventKind.LATER, EventKind.ANNOTATION]
        assert log.count() == 1

    def test_the_log_travels_as_json_lines(self, log: AnnotationLog, tmp_path: Path) -> None:
        log.record(judged())
        log.record(flagged(event="e2", version=2))
        write_annotations(tmp_path / "log.jsonl", log.annotations())
        assert len(read_annotations(tmp_path / "log.jsonl")) == 2
        other = AnnotationLog(STUDY, tmp_path / "other.sqlite")
        assert other.import_log(tmp_path / "log.jsonl") == 2
        assert other.annotations() == log.annotations()
        assert other.import_log(tmp_path / "log.jsonl") == 0
        other.close()

    def test_an_import_with_a_conflict_adds_nothing(self, log: AnnotationLog, tmp_path: Path) -> None:
        log.record(judged())
        write_annotations(tmp_path / "log.jsonl", [judged(STUDY.items[2].id, event="e5"), flagged(event="e6")])
        with pytest.raises(MismatchError, match=r"other annotations of 1: .*nothing was added"):
            log.import_log(tmp_path / "log.jsonl")
        assert log.count() == 1

    def test_a_log_without_event_ids_is_imported_once(self, log: AnnotationLog, tmp_path: Path) -> None:
        write_annotations(tmp_path / "log.jsonl", [judged(event="")])
        assert [log.import_log(tmp_path / "log.jsonl") for _ in range(2)] == [1, 0]

    def test_a_file_that_is_no_log_is_refused(self, log: AnnotationLog, tmp_path: Path) -> None:
        (tmp_path / "log.jsonl").write_text(json.dumps({"item": ITEM}) + "\n")
        with pytest.raises(FormatError, match="line 1: not an annotation"):
            log.import_log(tmp_path / "log.jsonl")

    def test_what_was_acknowledged_survives_a_killed_writer(self, tmp_path: Path) -> None:
        STUDY.save(tmp_path)
        code = (
            "import sys; from pathlib import Path; from circus_bench.validation.app import open_log\n"
            "from circus_bench.validation.annotations import Annotation\n"
            "log, item = open_log(Path(sys.argv[1])), sys.argv[2]\n"
            "for version in range(1, 100000):\n"
            "    made = Annotation(item, 'ann', 'VALIDATED', version=version, event=f'v{version}')\n"
            "    print(log.record(made).annotation.version, flush=True)"
        )
        command = [sys.executable, "-c", code, str(tmp_path), ITEM]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            acknowledged = [int(writer.stdout.readline()) for _ in range(200)]
            writer.send_signal(signal.SIGKILL)
            acknowledged += [int(line) for line in writer.stdout.read().split()]
        log = open_log(tmp_path)
        versions = [annotation.version for annotation in log.annotations()]
        log.close()
        assert versions[: len(acknowledged)] == acknowledged
        assert len(versions) - len(acknowledged) <= 1  # the one whose acknowledgement was cut off


class TestPeople:
    def test_a_token_tells_who_it_is_and_only_its_hash_is_kept(self, tmp_path: Path) -> None:
        log = AnnotationLog(STUDY, tmp_path / "a.sqlite")
        token = log.invite("ann")
        assert log.person_for_token(token) == ANN
        assert log.person_for_token(token[:-1]) is None
        log.close()
        assert token.encode() not in (tmp_path / "a.sqlite").read_bytes()

    def test_a_new_token_ends_the_former_one(self, log: AnnotationLog) -> None:
        former, new = log.invite("ann"), log.invite("ann")
        assert log.person_for_token(former) is None
        assert log.person_for_token(new) == ANN

    def test_a_revoked_token_opens_nothing(self, log: AnnotationLog) -> None:
        token = log.invite("olga", "owner")
        assert log.person_for_token(token) == Person("olga", Access.OWNER)
        assert [log.revoke("olga"), log.revoke("olga")] == [True, False]
        assert log.person_for_token(token) is None

    @pytest.mark.parametrize("role", ["adjudicator", "owner"])
    def test_a_rater_cannot_be_something_else_too(self, log: AnnotationLog, role: str) -> None:
        with pytest.raises(AnnotationLogError, match="raters stay blind"):
            log.invite("ann", role)

    def test_a_rater_needs_items(self, log: AnnotationLog) -> None:
        with pytest.raises(AnnotationLogError, match=r"has no items assigned\. The study's raters are 2: 'ann', 'ben'"):
            log.invite("eve")

    def test_an_unknown_role_is_refused(self, log: AnnotationLog) -> None:
        with pytest.raises(AnnotationLogError, match="'boss' is no role"):
            log.invite("ann", "boss")


class TestBackups:
    @pytest.fixture
    def filled(self, tmp_path: Path) -> Iterator[AnnotationLog]:
        log = AnnotationLog(STUDY, tmp_path / "a.sqlite")
        log.record(judged())
        yield log
        log.close()

    def test_a_copy_holds_the_log_and_the_database(self, filled: AnnotationLog, tmp_path: Path) -> None:
        path = Backups(filled, tmp_path / "backups").copy()
        assert path is not None
        assert path.name == "judgements-0000001.jsonl"
        assert read_annotations(path) == filled.annotations()
        copied = AnnotationLog(STUDY, path.with_suffix(".sqlite"))
        assert copied.annotations() == filled.annotations()
        copied.close()

    def test_an_empty_log_makes_no_copy(self, tmp_path: Path) -> None:
        log = AnnotationLog(STUDY, tmp_path / "a.sqlite")
        assert Backups(log, tmp_path / "backups").copy() is None
        log.close()
        assert not (tmp_path / "backups").exists()

    def test_the_last_three_copies_are_kept(self, filled: AnnotationLog, tmp_path: Path) -> None:
        backups = Backups(filled, tmp_path / "backups")
        for version in range(2, 7):
            filled.record(judged(event=f"e{version}", version=version))
            backups.copy()
        kept = sorted(path.name for path in (tmp_path / "backups").glob("*.jsonl"))
        assert kept == [f"judgements-000000{n}.jsonl" for n in (4, 5, 6)]

    def test_an_end_of_service_makes_a_copy(self, filled: AnnotationLog, tmp_path: Path) -> None:
        with Backups(filled, tmp_path / "backups").running():
            assert not (tmp_path / "backups").exists()  # one annotation of fifty
        assert len(list((tmp_path / "backups").glob("*.jsonl"))) == 1

    def test_copies_are_made_while_judging_goes_on(self, filled: AnnotationLog, tmp_path: Path) -> None:
        with Backups(filled, tmp_path / "backups", every=1).running():
            filled.record(judged(event="e2", version=2))
            path = tmp_path / "backups" / "judgements-0000002.jsonl"
            for _ in range(100):
                if path.exists():
                    break
                threading.Event().wait(0.1)
            assert path.exists()

    def test_a_copy_that_fails_is_reported_and_stops_nothing(
        self, filled: AnnotationLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "backups").write_text("a file in the way")
        with Backups(filled, tmp_path / "backups").running():
            pass
        assert "the last backup failed" in caplog.text


class TestHub:
    """Clients are processes of their own, for the library reads its environment on import."""

    @pytest.fixture
    def hub(self) -> Iterator[LoopbackHub]:
        with LoopbackHub().running() as running:
            yield running

    def client(self, hub: LoopbackHub, study: Path, work: str) -> subprocess.CompletedProcess[str]:
        code = (
            "import sys; from pathlib import Path; from circus_bench.validation.app import open_log\n"
            "from circus_bench.validation.backup import Backups\n"
            "log = open_log(Path(sys.argv[1]))\n"
            "backups = Backups(log, Path(sys.argv[1]) / 'backups', hub_repo='group/judgements')\n" + work
        )
        environment = {**os.environ, **hub.environment(study / "home")}
        command = [sys.executable, "-c", code, str(study)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    @pytest.fixture
    def study(self, tmp_path: Path) -> Path:
        STUDY.save(tmp_path)
        log = open_log(tmp_path)
        log.record(judged())
        write_annotations(tmp_path / "log.jsonl", log.annotations())
        log.close()
        return tmp_path

    def test_the_log_is_committed_to_a_private_repository_once(self, hub: LoopbackHub, study: Path) -> None:
        done = self.client(hub, study, "backups.commit(); backups.commit()")
        assert done.returncode == 0, done.stderr
        assert hub.repositories["group/judgements"].private
        commits = hub.commits("group/judgements")
        assert [commit.message for commit in commits[1:]] == ["1 annotations of drawn scenes"]
        assert hub.content(commits[-1].files["judgements.jsonl"]) == (study / "log.jsonl").read_bytes()

    def test_a_public_repository_is_refused(self, hub: LoopbackHub, study: Path) -> None:
        from support.loopback_hub import Repository

        hub.repositories["group/judgements"] = repo = Repository(private=False)
        repo.commit("first", {"README.md": Blob(b"public")})
        done = self.client(hub, study, "backups.commit()")
        assert "annotations go to a private repository only" in done.stderr
        assert len(hub.commits("group/judgements")) == 1

    def test_a_new_disk_gets_the_log_back_before_anything_is_committed(self, hub: LoopbackHub, study: Path) -> None:
        self.client(hub, study, "backups.commit()")
        for path in study.glob("judgements.sqlite*"):
            path.unlink()
        log = open_log(study)
        log.record(judged(STUDY.items[2].id, event="e9"))
        log.close()
        refused = self.client(hub, study, "backups.commit()")
        assert "holds 1 annotations that this log lacks" in refused.stderr
        done = self.client(hub, study, "print(backups.restore(), backups.restore(), backups.commit())")
        assert done.stdout == "1 0 None\n", done.stderr
        committed = hub.content(hub.commits("group/judgements")[-1].files["judgements.jsonl"])
        assert committed.count(b"\n") == 2

    def test_without_a_repository_there_is_nothing_to_restore(self, hub: LoopbackHub, study: Path) -> None:
        assert self.client(hub, study, "print(backups.restore())").stdout == "0\n"


def test_a_study_of_another_shape_is_stored_beside_it(tmp_path: Path) -> None:
    study: Study = make_study(2, raters=("zoe",))
    log = AnnotationLog(study, tmp_path / "deep" / "er" / "b.sqlite")
    assert log.sqlite_file == tmp_path / "deep" / "er" / "b.sqlite"
    with sqlite3.connect(log.sqlite_file) as connection:
        assert connection.execute("SELECT study FROM study").fetchone() == ("drawn scenes",)
    connection.close()
    log.close()
