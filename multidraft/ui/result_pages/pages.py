"""The addresses of results: pages that need no script, so that previews of links, frames and archives have them whole.

``/result/run/ID``, ``/result/race/ID``, ``/result/batch/ID`` and ``/result/comparison/ID/ID`` are pages; with ``.svg``,
``.png``, ``.csv`` or ``.json`` at the end they are the picture, its figures, and all data. ``/embed/…`` is the picture
for a frame on another site.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlencode

from gradio.route_utils import get_root_url
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from drafters.errors import UserError, without_folders
from multidraft.policies.specs import replayed_as
from multidraft.replay.recorded import none_replayable
from multidraft.service.batch import BatchJob
from multidraft.service.lab import Verdicts
from multidraft.ui import example
from multidraft.ui.result_pages import compared, result
from multidraft.ui.result_pages.conditions import bibtex
from multidraft.ui.result_pages.drawing import BODY
from multidraft.ui.result_pages.picture import HEIGHT, WIDTH, Picture
from multidraft.ui.result_pages.result import Result
from multidraft.ui.widgets import markup, theme
from multidraft.ui.widgets.controls import check_fields
from multidraft.ui.widgets.events import run_number
from multidraft.ui.widgets.markup import count
from multidraft.ui.widgets.verdict import verdict_html
from storage.experiments import in_history
from storage.export import csv_of
from storage.problems import StorageError
from storage.records import PLAIN
from storage.run import Run, plain

ABOUT = (
    "One language model writes, several small drafters propose tokens ahead of it, and a policy learns which drafter "
    "to trust. The output is exactly the model's own; it only comes faster."
)

FRONT = "front.png"
"""The end of the address of the app's own picture."""

PICTURES = 64
"""Of those drawn last, so many are cached, some 20 kB each."""

LONGEST_ID = 64

WAIT_SECONDS = 1.0
"""So long a page waits for a verdict, which for a few prompts is quick."""

_SHEETS = ("widgets/tokens.css", "widgets/tables.css", "widgets/verdict.css", "result_pages/result.css")
_FRAMED = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors *"
"""The policy of a frame: it runs and loads nothing, and may stand on any site."""

_SIZE = {"width": WIDTH, "height": HEIGHT}


class ResultPages:
    """The results in the server's history, with ``verdicts`` on its batches, and in the recorded example; ``front`` has
    the run that the app's own preview shows."""

    def __init__(self, verdicts: Verdicts, front: Callable[[], Run]):
        self._verdicts, self._bench, self._front = verdicts, verdicts.work.workbench, front
        self._path = self._bench.store.path
        self._drawing = threading.Lock()  # one at a time: runs are timed beside it
        self._drawn: dict[str, bytes] = {}  # by the SVG

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/result/style.css", lambda request: _cached(_style(), "text/css")),
            Route(f"/result/{FRONT}", self.front),
            Route("/result/{place:path}", self.answer),
            Route("/embed/{place:path}", self.embedded),
        ]

    def find(self, place: str) -> Result | None:
        """The result at the end of an address, such as ``run/12``; ``None`` if there is none.

        Raises:
            StorageError: a history cannot be read.
            UserError: two experiments cannot be compared.
        """
        kind, *ids = place.split("/")
        if any(not id or len(id) > LONGEST_ID for id in ids):
            return None
        if kind == "comparison":
            return compared.comparison_result(self._path, ids[0], ids[1]) if len(ids) == 2 else None
        return self._in(self._path, kind, ids) or self._in(example.path(), kind, ids)

    def _in(self, path: Path, kind: str, ids: Sequence[str]) -> Result | None:
        if kind == "run" and len(ids) == 1 and (number := run_number(ids[0])) is not None:
            return result.run_result(path, number, self._bench.fits)
        if kind in ("race", "batch") and len(ids) == 1:
            return result.experiment_result(path, ids[0], self._bench.fits)
        return None

    def answer(self, request: Request) -> Response:
        """The page of a result, or one of its files."""
        place = request.path_params["place"]
        stem, _, suffix = place.rpartition(".")
        if stem and suffix in ("svg", "png", "csv", "json"):
            return self._file(self._found(stem), suffix)
        try:
            found = self._found(place)
            if found.place.startswith(("race/", "batch/")) and not in_history(self._path, found.made[0]["id"]):
                found = replace(found, app="")  # of the example, which of the app's tabs the Lab alone opens
            lab, why = self._lab(found)
            if why:
                found = replace(found, facts=[*found.facts, ("Replay in the Lab", why)])
            found = replace(found, again=self._again(found))
            return _html(_page(found, root_of(request), self._advised(found), lab))
        except HTTPException as error:
            root = root_of(request)
            page = markup.page("result_pages/refusal.html", title="No result", why=error.detail, root=root)
            return _html(page, error.status_code)

    def embedded(self, request: Request) -> Response:
        """The picture of a result, with a link to its page, for frames."""
        found = self._found(request.path_params["place"])
        address = f"{root_of(request)}/result/{found.place}"
        picture = Markup(found.picture.svg())  # its texts are escaped there
        shown = markup.page("result_pages/embed.html", title=found.title, picture=picture, address=address)
        response = _html(shown)
        response.headers["Content-Security-Policy"] = _FRAMED
        return response

    def tags(self, query: Mapping[str, str], root: str) -> str:
        """Tags for previews of an address of the app: of the run, race or batch that it names, or of the app."""
        shown = {"title": "multidraft", "description": ABOUT, "address": root, "picture": f"{root}/result/{FRONT}"}
        kind = next((kind for kind in ("run", "race", "batch") if kind in query), None)
        if kind:
            with suppress(StorageError, UserError):
                if found := self.find(f"{kind}/{query[kind]}"):
                    shown = _preview(found, root)
        return str(markup.macros("result_pages/page.html").tags(**shown, **_SIZE))

    def _advised(self, found: Result) -> Advised:
        """The verdict on a batch or benchmark of the history."""
        return advice_on(self._verdicts, found.made[0]["id"]) if self._is_batch(found) else Advised()

    def _lab(self, found: Result) -> tuple[str, str]:
        """Query of the app's address that replays a batch or benchmark in the Lab, or why that cannot be."""
        if not found.place.startswith("batch/"):
            return "", ""
        id = found.made[0]["id"]
        if why := none_replayable(self._path if self._is_batch(found) else example.path(), id):
            return "", why
        asked = [("tab", "lab"), ("lab_batch", id)]
        specs = dict.fromkeys(replayed_as(line["policy"]) for line in found.figures if line["policy"] != PLAIN)
        return urlencode([*asked, *(("lab_policy", spec) for spec in specs)]), ""

    def _again(self, found: Result) -> str:
        """Query of the app's address that has *Play* ready to run it again, if its fields take the settings now."""
        if found.again:
            with suppress(UserError):
                check_fields(found.data, self._bench.pool, self._bench.limits.new_tokens)
                return found.again
        return ""

    def _is_batch(self, found: Result) -> bool:
        """Whether it is a batch or benchmark, of the history and not of the example."""
        return found.place.startswith("batch/") and in_history(self._path, found.made[0]["id"])

    def _found(self, place: str) -> Result:
        try:
            found = self.find(place)
        except UserError as error:
            raise HTTPException(422, markup.sentence(error)) from None
        except StorageError as error:
            raise HTTPException(503, str(error)) from None
        if found is None:
            raise HTTPException(404, "This history has no such result: it may be another server's, or deleted.")
        return found

    def front(self, request: Request) -> Response:
        """The picture of the app's own address."""
        return self._png(result.front_picture(self._front()))

    def _file(self, found: Result, suffix: str) -> Response:
        if suffix == "svg":
            return _cached(found.picture.svg(), "image/svg+xml")
        if suffix == "png":
            return self._png(found.picture)
        if suffix == "csv":
            text, kind = csv_of(found.figures), "text/csv"
        else:
            text, kind = json.dumps(plain(found.data), ensure_ascii=False, indent=1), "application/json"
        name = f"{quote(found.place.replace('/', '-'), safe='')}.{suffix}"
        return Response(text, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})

    def _png(self, picture: Picture) -> Response:
        key = picture.svg()
        with self._drawing:
            if key not in self._drawn:
                self._drawn[key] = picture.png()
                while len(self._drawn) > PICTURES:
                    del self._drawn[next(iter(self._drawn))]
            return _cached(self._drawn[key], "image/png")


class Advised(NamedTuple):
    """What is known: the verdict, or a line on why there is none; ``again`` whether it will be known a little later."""

    verdict: Markup = Markup()
    line: str = ""
    again: bool = False


def advice_on(verdicts: Verdicts, id: str) -> Advised:
    """The verdict on an experiment."""
    batch = verdicts.work.workbench.jobs.find(id, BatchJob)
    if batch and not batch.done:
        done = f"{batch.runs_done:,} of {count(batch.total, 'run')}"
        line = f"This batch is running: {done} so far, of which these figures are; reload the page for newer ones. "
        return Advised(line=f"{line}Which drafters and draft length to use is worked out when it has ended.")
    try:
        job = verdicts.job(id)
    except (UserError, StorageError) as error:
        return Advised(line=f"No advice on drafters and draft length now: {without_folders(str(error))}.")
    if not job.wait(WAIT_SECONDS):
        line = "Working out which drafters and draft length to use; this page reloads by itself."
        return Advised(line=line, again=True)
    if job.result:
        return Advised(verdict_html(job.result))
    return Advised(line=f"No advice on drafters and draft length: {without_folders(job.error or 'stopped')}.")


def _page(found: Result, root: str, advice: Advised, lab: str) -> str:
    address = f"{root}/result/{found.place}"
    return markup.page(
        "result_pages/page.html",
        title=found.title,
        found=found,
        picture=Markup(found.picture.svg(top=BODY)),  # its texts are escaped there
        preview={**_preview(found, root), **_SIZE},
        address=address,
        root=root,
        sampled=any(each.get("temperature") for each in (found.data, *found.made)),
        advised=advice,
        lab=lab,
        frame=(WIDTH // 2, HEIGHT // 2 + 24),
        bibtex=bibtex(found.place, found.title, found.made, address, found.settings),
    )


def _preview(found: Result, root: str) -> dict[str, str]:
    address, description = f"{root}/result/{found.place}", f"{found.warning} {found.description}".lstrip()
    return {"title": found.title, "description": description, "address": address, "picture": f"{address}.png"}


def root_of(request: Request) -> str:
    """The app's own address, as browsers see it, whatever is asked for there: a path may hold characters that no
    address can."""
    top = Request({**request.scope, "path": "/", "raw_path": b"/", "query_string": b""})
    return get_root_url(top, "/", request.scope.get("root_path"))  # type: ignore[arg-type]


def _cached(content: str | bytes, kind: str) -> Response:
    return Response(content, media_type=kind, headers={"Cache-Control": "public, max-age=600"})


def _html(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="text/html", headers={"X-Content-Type-Options": "nosniff"})


@lru_cache(1)
def _style() -> str:
    sheets = "\n".join(map(markup.source, _SHEETS))
    return f"{theme.colours('@media (prefers-color-scheme: dark) {{ :root {{ {} }} }}')}\n{sheets}"
