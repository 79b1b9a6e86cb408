"""Route the app's requests. Everything but the sign-in page needs a token, and every POST an anti-forgery token."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse
from pydantic import BaseModel, ConfigDict, Field

from circus_bench.validation.annotation_log import Access, AnnotationLog, DeliveryOutcome, Person
from circus_bench.validation.annotations import LOG_FILE, Annotation, to_lines
from circus_bench.validation.app.pages import Pages
from circus_bench.validation.app.security import AttemptLimit, csrf_token
from circus_bench.validation.app.worklist import opaque_name
from circus_bench.validation.study import Study

AHEAD = 3
"""Items that a browser holds in advance, to go on with while the network is away."""

_COOKIE_DAYS = 90
_UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"


@dataclass(frozen=True)
class Site:
    """State that the routes work with, in `app.state.site`."""

    study: Study
    log: AnnotationLog
    pages: Pages
    limit: AttemptLimit

    @property
    def token_cookie(self) -> str:
        """Name of the sign-in cookie; studies on one host need names of their own, for cookies ignore the port."""
        return f"token_{opaque_name(self.study, 'cookie')[:8]}"

    @property
    def visit_cookie(self) -> str:
        """Name of the cookie that anti-forgery tokens are bound to."""
        return f"visit_{opaque_name(self.study, 'cookie')[:8]}"


def _site(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


TheSite = Annotated[Site, Depends(_site)]


def _person(request: Request, site: TheSite) -> Person:
    token = request.cookies.get(site.token_cookie, "")
    person = site.log.person_for_token(token) if token else None
    if person is None:
        raise HTTPException(401, "sign in first")
    return person


def _judge(person: Annotated[Person, Depends(_person)]) -> Person:
    if person.access is Access.OWNER:
        raise HTTPException(403, "owners do not judge")
    return person


def _owner(person: Annotated[Person, Depends(_person)]) -> Person:
    if person.access is not Access.OWNER:
        raise HTTPException(403, "for the study's owner")
    return person


ThePerson = Annotated[Person, Depends(_person)]
TheJudge = Annotated[Person, Depends(_judge)]
TheOwner = Annotated[Person, Depends(_owner)]

router = APIRouter()


class SignIn(BaseModel):
    """Body of a sign-in."""

    model_config = ConfigDict(extra="forbid")
    token: str = Field(max_length=200)


class Delivery(BaseModel):
    """Body of a mark or an annotation: their common fields."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    event: str = Field(pattern=_UUID)
    item: str = Field(max_length=64)


class Answer(Delivery):
    """Body of an annotation. A sound query is said to be sound: no flag alone would not tell it from an empty form."""

    replaces: int = Field(ge=0)
    sound: bool
    flags: list[str] = Field(default=[], max_length=100)
    reasons: list[str] = Field(default=[], max_length=100)
    answers: dict[str, bool] = {}
    alternatives: list[str] = Field(default=[], max_length=1000)
    note: str = Field(default="", max_length=2000)
    seconds: float = Field(ge=0, le=86_400)


@router.get("/")
def home(request: Request, site: TheSite) -> Response:
    """Redirect a person to where they start."""
    token = request.cookies.get(site.token_cookie, "")
    person = site.log.person_for_token(token) if token else None
    if person is None:
        return RedirectResponse("/sign-in", 303)
    return RedirectResponse("/dashboard" if person.access is Access.OWNER else "/judge", 303)


@router.get("/sign-in")
def sign_in_page(request: Request, site: TheSite) -> Response:
    """Show the sign-in page; a personal link has the token behind its `#`, which is never sent here."""
    return _page(request, site, "sign_in", person=None)


@router.post("/sign-in")
def sign_in(request: Request, site: TheSite, body: SignIn) -> Response:
    """Exchange a token for a cookie."""
    address = request.client.host if request.client else ""
    wait = site.limit.wait(address)
    if wait:
        raise HTTPException(429, f"too many attempts; try again in {wait} s", {"Retry-After": str(wait)})
    person = site.log.person_for_token(body.token.strip())
    if person is None:
        site.limit.failed(address)
        raise HTTPException(401, "this link is not valid (any more); ask the study's owner for a new one")
    answer = JSONResponse({"to": "/"})
    _set_cookie(request, answer, site.token_cookie, body.token.strip())
    return answer


@router.post("/sign-out")
def sign_out(site: TheSite) -> Response:
    """Delete the cookie."""
    answer = JSONResponse({"to": "/sign-in"})
    answer.delete_cookie(site.token_cookie)
    return answer


@router.get("/instructions")
def instructions(request: Request, site: TheSite, person: ThePerson) -> Response:
    """Show the questions, with worked examples."""
    return _page(request, site, "instructions", person=person)


@router.get("/judge")
def judge(request: Request, site: TheSite, person: TheJudge) -> Response:
    """Show the next item, or the end."""
    worklist = site.pages.worklists.of(person)
    if not worklist.judged and "begin" not in request.query_params:
        return RedirectResponse("/instructions", 303)
    return _judging(request, site, person, worklist.open[0] if worklist.open else None)


@router.get("/judge/{item}")
def judge_one(request: Request, site: TheSite, person: TheJudge, item: str) -> Response:
    """Show an item of one's own: put off, or judged before."""
    return _judging(request, site, person, _own(site, person, item))


@router.get("/later")
def later(request: Request, site: TheSite, person: TheJudge) -> Response:
    """List the items put off."""
    worklist = site.pages.worklists.of(person)
    items = [(site.pages.worklists.name(item), site.pages.text(item)) for item in worklist.later]
    return _page(request, site, "later", person=person, items=items)


@router.get("/items/ahead")
def items_ahead(site: TheSite, person: TheJudge, after: str = "") -> list[dict[str, Any]]:
    """Render the items that come next, besides the one on the screen."""
    coming = [item for item in site.pages.worklists.of(person).open if site.pages.worklists.name(item) != after]
    return [site.pages.item(person, item) for item in coming[:AHEAD]]


@router.get("/items/next")
def item_next(site: TheSite, person: TheJudge) -> dict[str, Any]:
    """Render the next item; empty at the end."""
    worklist = site.pages.worklists.of(person)
    return site.pages.item(person, worklist.open[0]) if worklist.open else {}


@router.get("/items/before")
def item_before(site: TheSite, person: TheJudge, item: str) -> dict[str, Any]:
    """Render the item judged before this one; empty where there is none."""
    before = site.pages.worklists.of(person).before(_own(site, person, item))
    return site.pages.item(person, before) if before else {}


@router.get("/items/{item}")
def item_one(site: TheSite, person: TheJudge, item: str) -> dict[str, Any]:
    """Render an item of one's own."""
    return site.pages.item(person, _own(site, person, item))


@router.post("/judgements")
def record(site: TheSite, person: TheJudge, body: Answer) -> Response:
    """Store an annotation, and answer when it is on disk."""
    item = _own(site, person, body.item)
    if body.sound == bool(body.flags):
        raise HTTPException(422, "a query is either sound, or something is wrong with it")
    receipt = site.log.record(
        Annotation(
            item=item,
            rater=person.id,
            label=site.study.rubric.label_of(body.flags),
            flags=tuple(body.flags),
            reasons=tuple(body.reasons),
            answers=body.answers,
            alternatives=site.pages.alternatives(item, body.alternatives),
            note=body.note.strip(),
            seconds=body.seconds,
            version=body.replaces + 1,
            role=person.role,
            event=body.event,
        )
    )
    if receipt.outcome is DeliveryOutcome.CONFLICT:
        stored = {"version": receipt.annotation.version, "html": site.pages.verdict(receipt.annotation)}
        return JSONResponse({"error": "this item was judged elsewhere meanwhile", "stored": stored}, 409)
    feedback = site.pages.feedback(receipt.annotation)
    return JSONResponse({**_coming(site, person), "version": receipt.annotation.version, "feedback": feedback})


@router.post("/later")
def put_off(site: TheSite, person: TheJudge, body: Delivery) -> dict[str, Any]:
    """Log that a person will come back to an item."""
    site.log.put_off(_own(site, person, body.item), person, event_id=body.event)
    return _coming(site, person)


@router.get("/images/{name}")
def image(site: TheSite, _: ThePerson, name: str) -> Response:
    """Serve an image of the study."""
    return _image(site, name, small=False)


@router.get("/thumbnails/{name}")
def thumbnail(site: TheSite, _: ThePerson, name: str) -> Response:
    """Serve an image of the study, small."""
    return _image(site, name, small=True)


@router.get("/dashboard")
def dashboard(request: Request, site: TheSite, person: TheOwner) -> Response:
    """Show the dashboard."""
    from circus_bench.validation.app.dashboard import overview

    return _page(request, site, "dashboard", person=person, **overview(site.study, site.log))


@router.get(f"/{LOG_FILE}")
def log(site: TheSite, _: TheOwner) -> Response:
    """Download the whole log."""
    headers = {"Content-Disposition": f'attachment; filename="{LOG_FILE}"'}
    return PlainTextResponse(to_lines(site.log.annotations()), media_type="application/jsonl", headers=headers)


@router.get("/health")
def health(site: TheSite) -> dict[Literal["judgements"], int]:
    """Check that the database answers; for a container's health check."""
    site.log.count()
    return {}


def _judging(request: Request, site: Site, person: Person, item: str | None) -> Response:
    worklist = site.pages.worklists.of(person)
    return _page(
        request,
        site,
        "judge",
        person=person,
        work=worklist,
        item=site.pages.item(person, item) if item else None,
        last=site.pages.worklists.name(worklist.judged[-1]) if worklist.judged else None,
        outbox=opaque_name(site.study, "outbox", person.role.value, person.id),
    )


def _coming(site: Site, person: Person) -> dict[str, Any]:
    """Tell what follows: the name of the next item (None at the end), and the progress to show."""
    worklist = site.pages.worklists.of(person)
    following = site.pages.worklists.name(worklist.open[0]) if worklist.open else None
    return {"next": following, "progress": site.pages.progress(worklist, person)}


def _own(site: Site, person: Person, name: str) -> str:
    """Find the item of this name, if it is one of the person's; nobody learns whether others have it."""
    item = site.pages.worklists.named(name)
    if item is None or item not in site.pages.worklists.of(person).items:
        raise HTTPException(404, "you have no such item")
    return item


def _image(site: Site, name: str, *, small: bool) -> Response:
    found = site.pages.images.get(name, small=small)
    if found is None:
        raise HTTPException(404, "no such image")
    headers = {"Cache-Control": "private, max-age=604800, immutable"}
    return Response(found.data, media_type=found.media_type, headers=headers)


def _page(request: Request, site: Site, template: str, *, person: Person | None, **context: Any) -> Response:
    visit = request.cookies.get(site.visit_cookie) or secrets.token_urlsafe(32)
    html = site.pages.render(template, person=person, csrf=csrf_token(visit), **context)
    answer = HTMLResponse(html)
    if site.visit_cookie not in request.cookies:
        _set_cookie(request, answer, site.visit_cookie, visit)
    return answer


def _set_cookie(request: Request, answer: Response, name: str, value: str) -> None:
    secure = request.url.scheme == "https"
    answer.set_cookie(name, value, max_age=_COOKIE_DAYS * 86_400, httponly=True, samesite="strict", secure=secure)
