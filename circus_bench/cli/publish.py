"""`circus-bench data publish`: a dataset folder to the Hub."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circus_bench.cli.options import DryRunOption, JsonOption
from circus_bench.cli.output import print_json, print_table, progress, warn

if TYPE_CHECKING:
    from circus_bench.hub.publish import Plan


def publish(
    folder: Annotated[
        Path, typer.Argument(help="Dataset folder that `circus-bench data make` wrote.", exists=True, file_okay=False)
    ],
    repo: Annotated[str, typer.Option(help="Dataset repository, ORG/NAME.")],
    private: Annotated[bool, typer.Option("--private", help="Make the repository private if it is new.")] = False,
    create_pr: Annotated[bool, typer.Option("--create-pr", help="Open a pull request instead of committing.")] = False,
    dry_run: DryRunOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Take benchmarks off the repository that the folder does not hold.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Publish a dataset folder: show what would change, upload it, and make one commit.

    The token is that of `hf auth login`, or HF_TOKEN. An upload that was cut off goes on where it was. Where
    HF_HUB_OFFLINE is set, --dry-run asks nobody.
    """
    from huggingface_hub.constants import HF_HUB_OFFLINE

    from circus_bench.hub import publish as release
    from circus_bench.hub.writer import read_manifest

    with progress("checksums", len(read_manifest(folder)["files"])) as advance:
        planned = release.plan(folder, repo, private=private, ask=not (dry_run and HF_HUB_OFFLINE), advance=advance)
    if dry_run and HF_HUB_OFFLINE:
        warn("HF_HUB_OFFLINE is set, so the Hub was not asked: the plan is that of a new repository")
    outcome: dict[str, Any] = {"plan": planned.to_dict(), "published": None}
    if not json:
        _show(planned)
    nothing = planned.empty and planned.parent is not None
    if not dry_run:
        if not (yes or nothing):
            _ask(planned)
        done = release.publish(planned, create_pr=create_pr, remove=remove)
        outcome["published"] = {
            "commit": done.commit,
            "url": done.url,
            "pull_request": done.pull_request,
            "made": done.made,
        }
        if not json:
            typer.echo(f"{'published' if done.made else 'already published'}: {done.pull_request or done.url}")
            typer.echo(f'load_dataset("{repo}", ..., revision="{done.commit}")')
    if json:
        print_json(outcome)


def _show(planned: Plan) -> None:
    from circus_bench.hub.publish import Change

    state = "new repository" if planned.parent is None else f"on top of {planned.parent[:8]}"
    rows = [[file.path, file.change.value, f"{file.size:,}"] for file in planned.files]
    print_table(f"{planned.repo}: {state}{', private' if planned.private else ''}", ["file", "change", "bytes"], rows)
    sent = [file for change in (Change.NEW, Change.CHANGED) for file in planned.of(change)]
    typer.echo(
        f"{len(sent)} files to send, at most {sum(file.size for file in sent):,} bytes; "
        f"{len(planned.of(Change.UNCHANGED))} unchanged; {len(planned.of(Change.REMOVED))} to remove"
    )


def _ask(planned: Plan) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask on; pass --yes to publish or --dry-run to look")
    typer.confirm(f"publish to {planned.repo}?", abort=True)
