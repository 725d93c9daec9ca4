"""``/operator``: what is under way, an end to it, and deletion of runs, for whoever has the operator's key."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from multidraft.service.jobs import Job
from multidraft.service.workbench import Reading, RunJob, Workbench
from multidraft.serving.guard import has_key
from storage import queries
from storage.deletion import delete
from storage.filters import Filter, run_id
from storage.problems import StorageError


class Operator:
    """Lists and stops jobs, and deletes runs.

    Args:
        key: what an operator sends as bearer token.
    """

    def __init__(self, workbench: Workbench, key: str):
        self.jobs, self._workbench, self._key = workbench.jobs, workbench, key

    def routes(self) -> list[Route]:
        """``GET /operator/jobs`` lists, ``DELETE /operator/jobs/ID`` stops one, ``DELETE /operator/jobs`` all;
        ``?visitor=ADDRESS`` those of one visitor. ``DELETE /operator/runs/NUMBER`` deletes a run from the history,
        ``DELETE /operator/batches/ID`` those of a batch, race or benchmark."""
        return [
            Route("/operator/jobs", self.answer, methods=["GET", "DELETE"]),
            Route("/operator/jobs/{id}", self.answer, methods=["DELETE"]),
            Route("/operator/runs/{number:int}", self.delete, methods=["DELETE"]),
            Route("/operator/batches/{batch}", self.delete, methods=["DELETE"]),
        ]

    async def answer(self, request: Request) -> Response:
        """The jobs that were asked for; those that are deleted end after the round in progress."""
        if refused := self._refusal(request):
            return refused
        if unknown := sorted(set(request.query_params) - {"visitor"}):  # a misspelt one would choose all jobs
            return JSONResponse({"detail": f"unknown parameter {unknown[0][:40]!r}; there is only visitor"}, 400)
        id, visitor = request.path_params.get("id"), request.query_params.get("visitor")
        found = [job for job in self.jobs.listed if id in (None, job.id) and visitor in (None, job.caller.visitor)]
        if id and not found:
            return JSONResponse({"detail": f"no job {id[:40]!r} is under way"}, 404)
        report = [_report(job) for job in found]
        if request.method == "DELETE":
            for job in found:
                if isinstance(job, RunJob | Reading):  # programs wait for those, and would ask again
                    job.end_early("ended early: the operator of this server stopped it")
                else:
                    job.cancel()
        return JSONResponse({"jobs": report})

    async def delete(self, request: Request) -> Response:
        """How many runs were deleted."""
        if refused := self._refusal(request):
            return refused
        number, batch = request.path_params.get("number"), request.path_params.get("batch")
        chosen = Filter(batch_id=(batch,)) if batch else Filter(id=(run_id(number or 0),))
        path = self._workbench.store.path
        try:
            run = None if batch else await run_in_threadpool(queries.run, path, number or 0)
            job = self.jobs.find(batch or (run and run.origin.batch_id) or "", Job)
            if batch and job and not job.done:
                return JSONResponse({"detail": "it is still under way: stop it first"}, 409)
            deleted = await run_in_threadpool(delete, path, chosen)
        except StorageError as error:
            return JSONResponse({"detail": str(error)}, 503)
        if not deleted:
            return JSONResponse({"detail": f"the history has no such {'batch' if batch else 'run'}"}, 404)
        if job and job.done:  # the page shows what is left of it from there
            self.jobs.forget(job)
        self._workbench.cut_off.pop(batch or "", None)
        return JSONResponse({"deleted": deleted})

    def _refusal(self, request: Request) -> Response | None:
        if has_key(request, self._key):
            return None
        said = "this needs the operator's key, sent as a bearer token"
        return JSONResponse({"detail": said}, 401, {"WWW-Authenticate": "Bearer"})


def _report(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "kind": job.kind,
        "visitor": job.caller.visitor,
        "started": job.started,
        "ahead": job.ahead,
        "device_seconds": round(job.device_seconds, 3),
    }
