"""The annotation app as people use it: headless Chromium, a keyboard, and a network and a server that go away."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.annotation import Server, make_study, save

from circus_bench.validation.annotations import Annotation, AnnotatorRole
from circus_bench.validation.study import Study

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SOUND = ("v", "n", "n")
WRONG_TARGET = ("3",)
DESK, PHONE = {"width": 1280, "height": 800}, {"width": 375, "height": 740}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium as the system has it; where CIRCUS_REQUIRE_BROWSER is set, its absence is a failure."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        miss = pytest.fail if os.environ.get("CIRCUS_REQUIRE_BROWSER") else pytest.skip
        miss(f"needs a browser: none of {', '.join(BROWSERS)} is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of a study with many raters: each test takes one who has not judged yet, see `ann`."""
    names = tuple(f"ann-{number}" for number in range(40))
    server = Server(save(make_study(6, raters=names), tmp_path_factory.mktemp("study")))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    return (f"ann-{number}" for number in range(40))


@pytest.fixture
def ann(browser: Browser, server: Server, names: Iterator[str]) -> Iterator[Person]:
    """A rater with six items and a browser of their own."""
    person = Person(browser, server, next(names))
    yield person
    person.context.close()
    assert person.complaints == []


@pytest.fixture
def page(ann: Person) -> Page:
    """Their first item."""
    return ann.begin()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Study], Server]]:
    """`serve(study)`: a server process."""
    servers = []

    def start(study: Study) -> Server:
        server = Server(save(study, tmp_path / f"study-{len(servers)}"))
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.stop()


class Person:
    """Somebody at a browser of their own. Complaints of their pages are collected, and fail the test at the end."""

    def __init__(self, browser: Browser, server: Server, name: str, role: str = "rater", **options: Any) -> None:
        self.context: BrowserContext = browser.new_context(**{"viewport": DESK, **options})
        self.context.set_default_timeout(20_000)
        self.server = server
        self.name = name
        self.assigned = Study.load(server.folder).assignments.get(name, ())
        self.complaints: list[str] = []
        self.page = self.tab(f"/sign-in#{server.token(name, role)}")
        self.page.wait_for_url(re.compile("/(instructions|judge|dashboard)"))

    def tab(self, path: str = "/judge?begin") -> Page:
        """Open one more tab."""
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: self.complaints.append(said.text) if "Content Security" in said.text else None)
        page.goto(self.server.url + path)
        if path.startswith("/judge"):
            page.wait_for_selector("body[data-ready]")
        return page

    def log(self) -> list[Annotation]:
        """Their annotations."""
        return [annotation for annotation in log(self.server) if annotation.rater == self.name]

    def begin(self) -> Page:
        """Leave the instructions, with the keyboard."""
        self.page.locator("#begin").focus()
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("body[data-ready]")
        return self.page


def item_of(page: Page) -> str | None:
    """The name of the item on the screen; None at the end."""
    return page.evaluate("() => document.querySelector('#answer')?.dataset.item ?? null")


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def moved_on(page: Page, item: str | None) -> None:
    """Wait until another item is on the screen, or the end."""
    script = """item => document.querySelector('#finished')
        || (document.querySelector('#answer') && document.querySelector('#answer').dataset.item !== item)"""
    page.wait_for_function(script, arg=item)


def judge(page: Page, *keys: str) -> str | None:
    """Judge the item on the screen with the keyboard, and wait for the next one."""
    item = item_of(page)
    press(page, *keys, "Enter")
    moved_on(page, item)
    return item


def trained(page: Page) -> None:
    """Judge the training item on the screen, and leave its feedback."""
    item = item_of(page)
    press(page, "4", "Enter")
    page.wait_for_selector("#continue:focus")
    press(page, "Enter")
    moved_on(page, item)


def state(page: Page) -> str:
    return page.inner_text("#state")


def says(page: Page, start: str) -> None:
    """Wait until the state line begins with this."""
    page.wait_for_function("start => document.querySelector('#state')?.textContent.startsWith(start)", arg=start)


def saved(page: Page) -> None:
    page.wait_for_function("() => document.querySelector('#state')?.textContent === 'Saved'")


def log(server: Server) -> list[Annotation]:
    """The log, once it is sure that no event is in it twice."""
    log = server.log()
    try:
        annotations = log.annotations()
    finally:
        log.close()
    twice = [event for event, n in Counter(annotation.event for annotation in annotations).items() if n > 1]
    assert twice == []
    return annotations


def items_of(annotations: list[Annotation], rater: str) -> list[str]:
    return [annotation.item for annotation in annotations if annotation.rater == rater]


@pytest.mark.slow
def test_two_raters_and_an_adjudicator_finish_a_study_by_keyboard(
    browser: Browser, serve: Callable[[Study], Server]
) -> None:
    study = make_study(30)
    server = serve(study)
    ann, ben = Person(browser, server, "ann"), Person(browser, server, "ben")
    for person, every in ((ann, 3), (ben, 5)):
        page = person.begin()
        for number in range(30):
            judge(page, *(WRONG_TARGET if number % every == 0 else SOUND))
        assert page.inner_text("h1") == "Thank you, that was all"
    annotations = log(server)
    assert items_of(annotations, "ann") == list(study.assignments["ann"])
    assert items_of(annotations, "ben") == list(study.assignments["ben"])

    labels: dict[str, set[str]] = {}
    for annotation in annotations:
        labels.setdefault(annotation.item, set()).add(annotation.label)
    disputed = {item for item, given in labels.items() if len(given) > 1}
    cleo = Person(browser, server, "cleo", "adjudicator")
    page = cleo.begin()
    for _ in disputed:
        judge(page, *SOUND)
    assert page.inner_text("h1") == "Nothing to decide"
    decided = [annotation for annotation in log(server) if annotation.role is AnnotatorRole.ADJUDICATOR]
    assert sorted(annotation.item for annotation in decided) == sorted(disputed)
    olga = Person(browser, server, "olga", "owner")
    assert f"{len(disputed)} of them are adjudicated" in olga.page.inner_text("main")
    assert [person.complaints for person in (ann, ben, cleo, olga)] == [[], [], [], []]


class TestKeyboard:
    def test_reasons_follow_up_questions_candidates_and_notes_are_stored(self, ann: Person, page: Page) -> None:
        press(page, "1", "a", "3", "p", "Space", "ArrowRight", "ArrowRight", "Space", "m")
        page.keyboard.type("3 v l")  # in a note these are letters
        press(page, "Escape")
        judge(page)
        judge(page, "v", "t", "i", "i")  # a question's key says yes, pressed again no
        first, second = ann.log()
        assert first.flags == ("text", "target")
        assert len(first.reasons) == 1
        assert first.note == "3 v l"
        assert len(first.alternatives) in (1, 2)  # one of the two may be the target itself
        assert dict(second.answers) == {"text_alone": True, "image_alone": False}

    def test_nothing_is_saved_before_it_is_complete(self, ann: Person, page: Page) -> None:
        press(page, "Enter")
        assert page.inner_text("#problem") == "Choose “sound”, or what is wrong."
        press(page, "v", "Enter")
        assert page.inner_text("#problem") == "Answer the questions first: Y or N."
        assert ann.log() == []

    def test_sound_and_wrong_exclude_each_other(self, page: Page) -> None:
        press(page, "3", "v")
        assert page.locator("input[name=flag]:checked").count() == 0
        press(page, "4")
        assert not page.is_checked("input[name=sound]")

    def test_undo_corrects_the_item_before(self, ann: Person, page: Page) -> None:
        first = judge(page, *WRONG_TARGET)
        second = item_of(page)
        press(page, "u")
        moved_on(page, second)
        assert item_of(page) == first
        assert page.is_checked("input[value=target]")
        assert judge(page, *SOUND) == first
        assert item_of(page) == second
        assert [(j.label, j.version) for j in ann.log()] == [("INVALID_TARGET_IMAGE", 1), ("VALIDATED", 2)]

    def test_an_item_put_off_comes_at_the_end(self, page: Page) -> None:
        first = item_of(page)
        press(page, "l")
        moved_on(page, first)
        shown = [judge(page, *SOUND) for _ in range(5)]
        assert first not in shown
        assert item_of(page) == first

    def test_the_viewer_walks_through_all_images_and_chooses_candidates(self, page: Page) -> None:
        press(page, "z")
        assert page.inner_text("#viewer-caption") == "Reference"
        press(page, "ArrowRight")
        assert page.inner_text("#viewer-caption") == "Target"
        press(page, "ArrowRight", "Space")
        assert page.inner_text("#viewer-caption").startswith("Candidate 1 of ")
        assert page.get_attribute("#viewer-toggle", "aria-pressed") == "true"
        press(page, "Escape")
        assert page.locator("input[name=alternative]:checked").count() == 1


class TestNetwork:
    def test_the_next_item_is_shown_only_after_the_acknowledgement(self, ann: Person, page: Page) -> None:
        held: list[Any] = []

        def hold(route: Any) -> None:
            held.append(route)

        page.route("**/judgements", hold)
        item = item_of(page)
        press(page, *SOUND, "Enter")
        page.wait_for_timeout(500)
        assert item_of(page) == item
        assert state(page) == "Waiting for the network: 1"
        assert ann.log() == []
        held[0].continue_()
        moved_on(page, item)
        assert state(page) == "Saved"
        assert len(ann.log()) == 1

    def test_a_rater_goes_offline_goes_on_and_comes_back(self, ann: Person, page: Page) -> None:
        judge(page, *SOUND)
        page.wait_for_load_state("networkidle")
        ann.context.set_offline(True)
        for waiting in (1, 2, 3):
            item = item_of(page)
            press(page, *WRONG_TARGET, "Enter")
            page.wait_for_selector("#waiting:visible")
            assert state(page) == f"Waiting for the network: {waiting}"
            assert item_of(page) == item
            if waiting < 3:
                press(page, "g")
                moved_on(page, item)
        assert len(ann.log()) == 1
        ann.context.set_offline(False)
        moved_on(page, item)
        saved(page)
        for _ in range(2):
            judge(page, *SOUND)
        assert page.locator("#finished").is_visible()
        judged = [annotation.item for annotation in ann.log()]
        assert judged == list(ann.assigned)  # each once, and in order

    def test_the_images_of_the_next_item_are_there_before_it_is_shown(self, ann: Person, page: Page) -> None:
        page.wait_for_load_state("networkidle")
        item = item_of(page)
        ann.context.set_offline(True)
        press(page, *SOUND, "Enter")
        page.wait_for_selector("#go-on:visible")
        press(page, "g")
        moved_on(page, item)
        page.wait_for_function("() => [...document.images].every((image) => image.complete)")
        assert page.evaluate("() => [...document.images].filter((i) => i.src && i.naturalWidth === 0).length") == 0

    def test_a_network_that_goes_away_after_the_acknowledgement_is_waited_for(self, ann: Person, page: Page) -> None:
        page.route("**/items/**", lambda route: route.abort())
        page.reload()
        page.wait_for_selector("body[data-ready]")
        item = item_of(page)
        press(page, *SOUND, "Enter")
        says(page, "Saved; waiting for the network")
        assert item_of(page) == item
        assert len(ann.log()) == 1
        page.unroute("**/items/**")
        moved_on(page, item)
        assert state(page) == "Saved"
        judge(page, *SOUND)
        assert [annotation.item for annotation in ann.log()] == list(ann.assigned[:2])

    def test_what_waits_outlives_the_tab(self, ann: Person, page: Page) -> None:
        item = item_of(page)
        ann.context.set_offline(True)
        press(page, *SOUND, "Enter")
        page.wait_for_selector("#waiting:visible")
        page.close()
        ann.context.set_offline(False)
        page = ann.tab()
        saved(page)
        moved_on(page, item)
        assert [annotation.item for annotation in ann.log()] == [ann.assigned[0]]
        judge(page, *SOUND)
        assert [annotation.item for annotation in ann.log()] == list(ann.assigned[:2])

    def test_a_lost_acknowledgement_stores_nothing_twice(self, ann: Person, page: Page) -> None:
        def lose(route: Any) -> None:
            route.fetch()  # the server has it
            route.abort()  # the browser does not know

        page.route("**/judgements", lose, times=2)
        item = judge(page, *SOUND)
        assert item_of(page) != item
        assert len(ann.log()) == 1

    def test_signed_out_meanwhile_a_rater_loses_nothing(self, ann: Person, page: Page) -> None:
        token = ann.server.token(ann.name)  # ends the token that the page was opened with
        press(page, *SOUND, "Enter")
        says(page, "Signed out; 1 kept")
        assert ann.log() == []
        other = ann.tab(f"/sign-in#{token}")
        other.wait_for_url("**/instructions")
        saved(page)
        assert len(ann.log()) == 1

    def test_looking_ahead_signed_out_does_not_take_the_item_away(self, page: Page) -> None:
        page.route("**/items/ahead*", lambda route: route.fulfill(status=401, json={"error": "sign in"}))
        with page.expect_response("**/items/ahead*"):
            item = judge(page, *SOUND)
        page.wait_for_load_state("networkidle")
        assert page.url.endswith("/judge?begin")
        assert item_of(page) not in (item, None)


class TestTwoTabs:
    def test_a_conflict_is_shown_and_the_stored_annotation_can_be_kept(self, ann: Person, page: Page) -> None:
        other = ann.tab()
        item = item_of(page)
        assert item_of(other) == item
        judge(page, *SOUND)
        press(other, *WRONG_TARGET, "Enter")
        other.wait_for_selector("#conflict[open]")
        assert "Sound: the target answers the query" in other.inner_text("#conflict-stored")
        press(other, "Enter")  # the button that keeps it has the focus
        moved_on(other, item)
        saved(other)
        assert [annotation.label for annotation in ann.log()] == ["VALIDATED"]

    def test_the_stored_annotation_can_be_replaced(self, ann: Person, page: Page) -> None:
        other = ann.tab()
        item = judge(page, *SOUND)
        press(other, *WRONG_TARGET, "Enter")
        other.wait_for_selector("#conflict[open]")
        press(other, "Tab", "Enter")
        moved_on(other, item)
        assert [(j.label, j.version) for j in ann.log()] == [("VALIDATED", 1), ("INVALID_TARGET_IMAGE", 2)]

    def test_an_undecided_conflict_comes_back_after_a_reload(self, ann: Person, page: Page) -> None:
        other = ann.tab()
        judge(page, *SOUND)
        press(other, *WRONG_TARGET, "Enter")
        other.wait_for_selector("#conflict[open]")
        other.reload()
        other.wait_for_selector("#conflict[open]")
        press(other, "Enter")
        saved(other)
        assert len(ann.log()) == 1

    def test_a_tab_goes_on_when_another_delivers_what_it_waits_for(self, ann: Person, page: Page) -> None:
        page.route("**/judgements", lambda route: route.abort())  # this tab cannot send at all
        item = item_of(page)
        press(page, *SOUND, "Enter")
        page.wait_for_selector("#waiting:visible")
        other = ann.tab()
        moved_on(page, item)
        saved(page)
        saved(other)
        assert [annotation.item for annotation in ann.log()] == [ann.assigned[0]]
        assert page.is_enabled("#fields")

    def test_both_tabs_send_what_waited_only_once(self, ann: Person, page: Page) -> None:
        other = ann.tab()
        ann.context.set_offline(True)
        item = item_of(page)
        press(page, *SOUND, "Enter")
        page.wait_for_selector("#waiting:visible")
        ann.context.set_offline(False)  # both tabs hear of it
        moved_on(page, item)
        saved(page)
        saved(other)
        assert len(ann.log()) == 1


@pytest.mark.slow
def test_a_killed_server_loses_and_repeats_nothing(browser: Browser, serve: Callable[[Study], Server]) -> None:
    ann = Person(browser, serve(make_study(6)), "ann")
    page, done = ann.begin(), 0
    for before_sending in (True, False, True):
        item = item_of(page)
        if before_sending:
            ann.server.kill()
            press(page, *SOUND, "Enter")
            page.wait_for_selector("#waiting:visible")
            assert item_of(page) == item
        else:  # after the acknowledgement, before the next request
            page.route("**/items/**", lambda route: route.abort())
            press(page, *SOUND, "Enter")
            saved(page)
            ann.server.kill()
            page.unroute("**/items/**")
            done += 1
        assert len(ann.log()) == done
        ann.server.start()
        done += before_sending
        moved_on(page, item)
        saved(page)
        assert [annotation.item for annotation in ann.log()] == list(ann.assigned[:done])
    while item_of(page):
        judge(page, *SOUND)
    assert [annotation.item for annotation in ann.log()] == list(ann.assigned)


# What is seen: the color of each text, and what is painted behind it.
_CONTRASTS = """() => {
  const parse = (color) => (color.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const channel = (value) => { const c = value / 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => {
    for (let node = element; node; node = node.parentElement) {
      const [r, g, b, a = 1] = parse(getComputedStyle(node).backgroundColor);
      if (a === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || !element.checkVisibility() || element.closest(":disabled, svg, .hidden")) continue;
    const [a, b] = [luminance(parse(getComputedStyle(element).color)), luminance(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.push(`${contrast.toFixed(2)}: ${node.textContent.trim().slice(0, 40)}`);
  }
  return found;
}"""

# What a screen reader would have no name for.
_NAMELESS = """() =>
  [...document.querySelectorAll("a, button, input, textarea, summary, progress, img, dialog, [role=region]")]
  .filter((element) => element.checkVisibility())
  .filter((element) => !(element.getAttribute("aria-label") || element.labels?.[0]?.textContent.trim()
    || element.textContent.trim() || element.alt || document.getElementById(element.getAttribute("aria-labelledby"))))
  .map((element) => element.outerHTML.slice(0, 80))"""

# The focused element, where no ring of two pixels or more is drawn around it or its label.
_UNSEEN_FOCUS = """() => {
  const ring = getComputedStyle(document.activeElement.closest(".candidate") ?? document.activeElement);
  const seen = ring.outlineStyle !== "none" && parseFloat(ring.outlineWidth) >= 2;
  return seen ? [] : [document.activeElement.outerHTML.slice(0, 80)];
}"""


class TestAppearance:
    def pages(self, browser: Browser, server: Server, viewport: dict[str, int]) -> Iterator[tuple[str, Page]]:
        """Every page, in its states; the study has one training item and three others."""
        ann = Person(browser, server, "ann", viewport=viewport)
        yield "instructions", ann.page
        page = ann.begin()
        yield "item", page
        press(page, "v")
        yield "sound", page
        press(page, "1", "3", "p", "Space", "m")
        yield "flags", page
        press(page, "Escape", "z")
        yield "viewer", page
        press(page, "Escape", "?")
        yield "keys", page
        press(page, "Escape", "Enter")
        page.wait_for_selector("#feedback:visible")
        yield "feedback", page
        item = item_of(page)
        press(page, "Enter")
        moved_on(page, item)
        item = item_of(page)
        press(page, "l")
        moved_on(page, item)
        page.goto(server.url + "/later")
        yield "later", page
        page.goto(server.url + "/judge")
        page.wait_for_selector("body[data-ready]")
        item = item_of(page)
        ann.context.set_offline(True)
        press(page, "3", "Enter")
        page.wait_for_selector("#waiting:visible")
        yield "waiting", page
        ann.context.set_offline(False)
        moved_on(page, item)
        for _ in range(2):
            judge(page, "3")
        yield "finished", page
        ben = Person(browser, server, "ben")
        trained(ben.begin())
        for _ in range(3):
            judge(ben.page, *SOUND)
        yield "adjudication", Person(browser, server, "cleo", "adjudicator", viewport=viewport).begin()
        yield "dashboard", Person(browser, server, "olga", "owner", viewport=viewport).page
        yield "sign-in", ann.tab("/sign-in")

    @pytest.mark.slow
    @pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
    def test_contrast_names_and_width_are_those_of_wcag_aa(
        self, browser: Browser, serve: Callable[[Study], Server], viewport: dict[str, int]
    ) -> None:
        # AA asks for 4.5:1 where text is not large, and for no scrolling in two directions.
        problems, seen = [], []
        for name, page in self.pages(browser, serve(make_study(3, training=1)), viewport):
            seen.append(name)
            page.wait_for_timeout(150)  # transitions of color
            problems += [f"{name}, contrast {found}" for found in page.evaluate(_CONTRASTS)]
            problems += [f"{name}, nameless {found}" for found in page.evaluate(_NAMELESS)]
            width = page.evaluate("() => document.documentElement.scrollWidth")
            problems += [f"{name}: {width} pixels wide"] if width > viewport["width"] else []
            if shots := os.environ.get("CIRCUS_SCREENSHOTS"):
                page.screenshot(path=f"{shots}/{viewport['width']}-{name}.png")
        assert problems == []
        assert len(seen) == 13

    def test_the_focus_is_seen_wherever_it_goes(self, page: Page) -> None:
        unseen = []
        for _ in range(25):
            press(page, "Tab")
            unseen += page.evaluate(_UNSEEN_FOCUS)
        assert unseen == []
