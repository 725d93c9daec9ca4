"""A Hub of a few repositories on this machine, as far as ``huggingface_hub`` asks for it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CHUNK = 4096


class FakeHub:
    """Serves each folder ``root/OWNER/NAME`` as the repository ``OWNER/NAME``, with one revision, ``main``.

    Attributes:
        address: what ``HF_ENDPOINT`` is to be.
        gated: repositories that refuse their files.
        broken: whether it answers everything with status 503.
        flow: clear it, and files of weights stop arriving after their first bytes, until it is set.
        asked: paths of all requests.
    """

    def __init__(self, root: Path):
        self.root = root
        self.gated: set[str] = set()
        self.broken = False
        self.flow = threading.Event()
        self.flow.set()
        self.asked: list[str] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    @contextmanager
    def serving(self) -> Iterator[FakeHub]:
        """Answer until the block ends."""
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self.flow.set()
            self.server.shutdown()
            self.server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, hub: FakeHub, *arguments: object):
        self.hub = hub
        super().__init__(*arguments)  # type: ignore[arg-type]

    def log_message(self, *_: object) -> None: ...

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = urlsplit(self.path).path.strip("/")
        self.hub.asked.append(path)
        if self.hub.broken:
            return self._fail(503, "")
        parts = path.split("/")
        described = parts[:2] == ["api", "models"]
        if len(parts) < (5 if described else 4):
            return self._fail(404, "")
        owner, name, what, *rest = parts[2:] if described else parts
        id = f"{owner}/{name}"
        folder = self.hub.root / owner / name
        if not folder.is_dir():
            return self._fail(404, "RepoNotFound")
        if rest[0] not in ("main", COMMIT):
            return self._fail(404, "RevisionNotFound")
        if not described and id in self.hub.gated:
            return self._fail(403, "GatedRepo")
        files = [file for file in sorted(folder.iterdir()) if file.is_file()]
        if what == "revision":
            siblings = [{"rfilename": file.name} for file in files]
            return self._json({"id": id, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False})
        if what == "tree":
            return self._json(
                [{"type": "file", "path": f.name, "size": f.stat().st_size, "oid": _etag(f)} for f in files]
            )
        return self._file(folder / rest[1])

    def _file(self, file: Path) -> None:
        if not file.is_file():
            return self._fail(404, "EntryNotFound")
        content = file.read_bytes()
        self.send_response(200)
        self._finish_headers(len(content), etag=_etag(file))
        if self.command == "HEAD":
            return
        self.wfile.write(content[:CHUNK])
        self.wfile.flush()
        if file.suffix == ".safetensors":
            self.hub.flow.wait(60)
        self.wfile.write(content[CHUNK:])

    def _json(self, value: object) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self._finish_headers(len(content))
        if self.command == "GET":
            self.wfile.write(content)

    def _fail(self, status: int, code: str) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self._finish_headers(0)

    def _finish_headers(self, length: int, etag: str = "") -> None:
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(length))
        if etag:
            self.send_header("ETag", f'"{etag}"')
        self.end_headers()


def _etag(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()
