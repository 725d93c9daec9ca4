"""``/operator``: what is under way, and an end to it, for whoever has the operator's key."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from multidraft.service.jobs import Job
from multidraft.service.reading import Reading
from multidraft.service.workbench import RunJob, Workbench
from multidraft.serving.guard import has_key


class Operator:
    """Lists jobs and stops them.

    Args:
        key: what an operator sends as bearer token.
    """

    def __init__(self, workbench: Workbench, key: str):
        self.jobs, self._key = workbench.jobs, key

    def routes(self) -> list[Route]:
        """``GET /operator/jobs`` lists, ``DELETE /operator/jobs/ID`` stops one, ``DELETE /operator/jobs`` all;
        ``?visitor=ADDRESS`` those of one visitor."""
        return [
            Route("/operator/jobs", self.answer, methods=["GET", "DELETE"]),
            Route("/operator/jobs/{id}", self.answer, methods=["DELETE"]),
        ]

    async def answer(self, request: Request) -> Response:
        """The jobs that were asked for; those that are deleted end after the round in progress."""
        if not has_key(request, self._key):
            said = "this needs the operator's key, sent as a bearer token"
            return JSONResponse({"detail": said}, 401, {"WWW-Authenticate": "Bearer"})
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


def _report(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "kind": job.kind,
        "visitor": job.caller.visitor,
        "started": job.started,
        "ahead": job.ahead,
        "device_seconds": round(job.device_seconds, 3),
    }
