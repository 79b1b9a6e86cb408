"""A Hub on 127.0.0.1 that keeps datasets and models in memory: enough of the protocol to publish and to load.

Served: whoami, repos/create, preupload (parquet goes to large file storage, the rest does not), commit, revision, tree,
paths-info, commits, resolve with ranges, and the LFS batch protocol with its PUT. It can be told to drop uploads and to
let somebody else commit at the wrong moment. Clients must be started with `LoopbackHub.environment`, for the libraries
read theirs on import.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from support.loopback import LoopbackServer

TOKEN = "hf_loopback-token"
USER = "group"


@dataclass(frozen=True)
class Blob:
    """A file: its content, or the SHA-256 of what large file storage holds."""

    content: bytes = b""
    lfs: str | None = None

    @property
    def oid(self) -> str:
        """Git's id of the blob; of the pointer, for a large file."""
        content = (
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.lfs}\n".encode()
            if self.lfs
            else self.content
        )
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Commit:
    """A commit: its files, and the commits before it."""

    oid: str
    message: str
    files: Mapping[str, Blob]
    description: str = ""


@dataclass
class Repository:
    """A repository; `branches` holds `main` and one branch a pull request."""

    private: bool
    branches: dict[str, list[Commit]] = field(default_factory=dict)

    def commit(self, message: str, files: Mapping[str, Blob], *, branch: str = "main", description: str = "") -> Commit:
        """Put a commit on a branch."""
        history = self.branches.setdefault(branch, [])
        facts = json.dumps([message, len(history), branch, sorted((path, blob.oid) for path, blob in files.items())])
        made = Commit(
            hashlib.sha1(facts.encode(), usedforsecurity=False).hexdigest(), message, dict(files), description
        )
        history.append(made)
        return made

    def find(self, revision: str) -> Commit | None:
        """The commit of a branch or an id."""
        if revision in self.branches:
            return self.branches[revision][-1]
        return next((c for history in self.branches.values() for c in history if c.oid == revision), None)


class LoopbackHub(LoopbackServer):
    """The server.

    Attributes:
        repositories: by `ORG/NAME`.
        storage: large files by SHA-256.
        requests: method and path of every request, in order.
        dropped_puts: uploads still to be cut off in the middle; each is counted down.
        allowed_puts: uploads that pass before the dropping starts.
        before_commit: called when a commit arrives, before it is looked at.
        lost_answers: commits still to be made without an answer; each is counted down.
    """

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.repositories: dict[str, Repository] = {}
        self.storage: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.dropped_puts = 0
        self.allowed_puts = 0
        self.before_commit: Callable[[], object] = lambda: None
        self.lost_answers = 0
        self.lock = threading.RLock()

    def environment(self, home: Path) -> dict[str, str]:
        """What a client's environment must hold; `home` is its private HF_HOME."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_DATASETS_CACHE": str(home / "datasets"),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_OFFLINE": "0",
            "HF_TOKEN": TOKEN,
            "NO_PROXY": "127.0.0.1",
        }

    def commits(self, repo: str, branch: str = "main") -> list[Commit]:
        """The commits of a branch, the first one first."""
        return self.repositories[repo].branches[branch]

    def content(self, blob: Blob) -> bytes:
        """The bytes of a file."""
        return self.storage[blob.lfs] if blob.lfs else blob.content

    def puts(self) -> list[str]:
        """The large files that clients began to send, by SHA-256."""
        return [path.rsplit("/", 1)[1] for method, path in self.requests if method == "PUT"]


class _Handler(BaseHTTPRequestHandler):
    service: LoopbackHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._dispatch()

    def do_HEAD(self) -> None:
        self._dispatch()

    def do_POST(self) -> None:
        self._dispatch()

    def do_PUT(self) -> None:
        oid = self.path.rsplit("/", 1)[1]
        with self.service.lock:
            self.service.requests.append(("PUT", self.path))
            dropping = self.service.allowed_puts <= 0 and self.service.dropped_puts > 0
            self.service.allowed_puts -= 1
            self.service.dropped_puts -= dropping
        length = int(self.headers["Content-Length"])
        if dropping:
            self.rfile.read(length // 2)
            self._hang_up()
            return
        data = self.rfile.read(length)
        if hashlib.sha256(data).hexdigest() != oid:
            self._json(400, {"error": "checksum"})
            return
        with self.service.lock:
            self.service.storage[oid] = data
        self._json(200, {})

    def log_message(self, *_: object) -> None:
        """Stay silent."""

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _dispatch(self) -> None:
        url = urlsplit(self.path)
        parts = [unquote(part) for part in url.path.split("/") if part]
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        with self.service.lock:
            self.service.requests.append((self.command, url.path))
            given = self.headers.get("Authorization")
            writes = self.command == "POST" and not url.path.endswith("/validate-yaml")
            if given not in (None, f"Bearer {TOKEN}"):
                self._json(401, {"error": "Invalid credentials in Authorization header"})
            elif given is None and writes:
                self._json(401, {"error": "Invalid username or password."})
            elif parts[:1] == ["api"]:
                self._api(parts[1:], query, body)
            elif parts[0] == "datasets" and parts[3:4] == ["resolve"]:
                self._resolve("/".join(parts[1:3]), parts[4], "/".join(parts[5:]))
            elif url.path.endswith(".git/info/lfs/objects/batch"):
                self._batch(json.loads(body))
            else:
                self._json(404, {"error": f"not served: {self.command} {url.path}"})

    def _api(self, parts: list[str], query: dict[str, str], body: bytes) -> None:
        if parts == ["whoami-v2"]:
            self._json(200, {"type": "user", "name": USER, "orgs": [], "auth": {"accessToken": {"role": "write"}}})
        elif parts == ["validate-yaml"]:
            self._json(200, {"errors": [], "warnings": []})
        elif parts == ["repos", "create"]:
            self._create(json.loads(body))
        elif parts[0] in {"datasets", "models"} and len(parts) >= 3:
            name, action = "/".join(parts[1:3]), (parts[3] if len(parts) > 3 else "revision")
            repo = self.service.repositories.get(name)
            revision = parts[4] if len(parts) > 4 else "main"
            if repo is None:
                self._json(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            elif repo.find(revision) is None:
                self._json(404, {"error": f"Invalid rev id: {revision}"}, {"X-Error-Code": "RevisionNotFound"})
            else:
                self._repository(name, repo, action, revision, parts[5:], query, body)
        else:
            self._json(404, {"error": f"not served: {'/'.join(parts)}"})

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted.get('organization') or USER}/{wanted['name']}"
        url = f"{self.service.url}/datasets/{name}"
        if name in self.service.repositories:
            self._json(409, {"error": "You already created this dataset repo", "url": url})
            return
        private = bool(wanted.get("private")) or wanted.get("visibility") == "private"
        self.service.repositories[name] = repo = Repository(private)
        repo.commit("initial commit", {".gitattributes": Blob(b"*.parquet filter=lfs\n")})
        self._json(200, {"url": url, "name": name})

    def _repository(
        self,
        name: str,
        repo: Repository,
        action: str,
        revision: str,
        rest: list[str],
        query: dict[str, str],
        body: bytes,
    ) -> None:
        commit = repo.find(revision)
        assert commit is not None
        if action == "revision":
            siblings = [{"rfilename": path} for path in commit.files]
            facts = {"private": repo.private, "tags": [], "gated": False, "disabled": False, "downloads": 0, "likes": 0}
            self._json(200, {"id": name, "_id": name, "sha": commit.oid, "siblings": siblings, **facts})
        elif action == "tree":
            self._tree(commit, "/".join(rest), recursive=query.get("recursive", "").lower() == "true")
        elif action == "paths-info":
            form = json.loads(body) if self.headers["Content-Type"] == "application/json" else parse_qs(body.decode())
            paths = form["paths"]
            self._json(200, [e for p in paths for e in _entries(self.service, commit) if e["path"] == p])
        elif action == "commits":
            facts = {"message": "", "authors": [], "date": "2026-01-01T00:00:00.000Z"}
            self._json(200, [{"id": c.oid, "title": c.message, **facts} for c in reversed(repo.branches["main"])])
        elif action == "preupload":
            self._preupload(commit, json.loads(body))
        elif action == "commit":
            self._commit(name, repo, revision, query, body)
        else:
            self._json(404, {"error": f"not served: {action}"})

    def _tree(self, commit: Commit, under: str, *, recursive: bool) -> None:
        prefix = f"{under}/" if under else ""
        entries = [e for e in _entries(self.service, commit) if e["path"].startswith(prefix)]
        if not recursive:
            entries = [entry for entry in entries if "/" not in entry["path"][len(prefix) :]]
        if not entries and under:
            self._json(404, {"error": f"{under} does not exist"}, {"X-Error-Code": "EntryNotFound"})
        else:
            self._json(200, entries)

    def _preupload(self, commit: Commit, wanted: dict[str, Any]) -> None:
        def answer(path: str) -> dict[str, Any]:
            held = commit.files.get(path)
            mode = "lfs" if path.endswith(".parquet") else "regular"
            oid = {"oid": held.lfs or held.oid} if held else {}
            return {"path": path, "uploadMode": mode, "shouldIgnore": False, **oid}

        self._json(200, {"files": [answer(file["path"]) for file in wanted["files"]]})

    def _commit(self, name: str, repo: Repository, revision: str, query: dict[str, str], body: bytes) -> None:
        lines = [json.loads(line) for line in body.splitlines()]
        header = lines[0]["value"]
        self.service.before_commit()
        head = repo.find(revision)
        assert head is not None
        in_pull_request = query.get("create_pr") == "1"
        if header.get("parentCommit") not in (None, head.oid) and not in_pull_request:
            self._json(412, {"error": "A commit has happened since. Please refresh and try again."})
            return
        files = dict(head.files)
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = Blob(base64.b64decode(value["content"]))
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.service.storage:
                    self._json(400, {"error": f"{value['path']} was not uploaded"})
                    return
                files[value["path"]] = Blob(lfs=value["oid"])
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        branch = f"refs/pr/{len(repo.branches)}" if in_pull_request else revision
        made = repo.commit(header["summary"], files, branch=branch, description=header.get("description", ""))
        if self.service.lost_answers:
            self.service.lost_answers -= 1
            self._hang_up()
            return
        url = f"{self.service.url}/{'datasets/' if self.path.startswith('/api/datasets') else ''}{name}"
        pull_request = {"pullRequestUrl": f"{url}/discussions/{branch.rsplit('/', 1)[1]}"} if in_pull_request else {}
        self._json(200, {"commitUrl": f"{url}/commit/{made.oid}", "commitOid": made.oid, **pull_request})

    def _batch(self, wanted: dict[str, Any]) -> None:
        def answer(oid: str, size: int) -> dict[str, Any]:
            there = oid in self.service.storage
            return {
                "oid": oid,
                "size": size,
                **({} if there else {"actions": {"upload": {"href": f"{self.service.url}/lfs/{oid}"}}}),
            }

        objects = [answer(thing["oid"], thing["size"]) for thing in wanted["objects"]]
        self._json(200, {"transfer": "basic", "objects": objects}, kind="application/vnd.git-lfs+json")

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repo = self.service.repositories.get(name)
        commit = repo.find(revision) if repo else None
        if commit is None:
            self._json(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            return
        if path not in commit.files:
            self._json(404, {"error": f"{path} does not exist"}, {"X-Error-Code": "EntryNotFound"})
            return
        blob = commit.files[path]
        data = self.service.content(blob)
        headers = {"ETag": f'"{blob.lfs or blob.oid}"', "X-Repo-Commit": commit.oid, "Accept-Ranges": "bytes"}
        if blob.lfs:
            headers |= {"X-Linked-Etag": f'"{blob.lfs}"', "X-Linked-Size": str(len(data))}
        status = 200
        if wanted := self.headers.get("Range"):
            first, last = wanted.removeprefix("bytes=").split("-")
            start = int(first) if first else max(0, len(data) - int(last))
            end = min(int(last) + 1 if last and first else len(data), len(data))
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
            data, status = data[start:end], 206
        self._send(status, data, headers, "application/octet-stream")

    def _json(
        self, status: int, content: Any, headers: Mapping[str, str] | None = None, *, kind: str = "application/json"
    ) -> None:
        self._send(status, json.dumps(content).encode(), headers or {}, kind)

    def _send(self, status: int, data: bytes, headers: Mapping[str, str], kind: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _entries(hub: LoopbackHub, commit: Commit) -> list[dict[str, Any]]:
    """Files and folders of a commit as the tree and paths-info answers list them."""
    folders = {str(parent) for path in commit.files for parent in Path(path).parents if str(parent) != "."}
    entries: list[dict[str, Any]] = [
        {
            "type": "directory",
            "path": path,
            "oid": hashlib.sha1(path.encode(), usedforsecurity=False).hexdigest(),
            "size": 0,
        }
        for path in folders
    ]
    for path, blob in commit.files.items():
        size = len(hub.content(blob))
        lfs = {"lfs": {"oid": blob.lfs, "size": size, "pointerSize": 130}} if blob.lfs else {}
        entries.append({"type": "file", "path": path, "oid": blob.oid, "size": size, **lfs})
    return sorted(entries, key=lambda entry: str(entry["path"]))
