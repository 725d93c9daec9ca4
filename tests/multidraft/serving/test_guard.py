"""By which names the server is asked, what browsers may do with its answers, and the operator's stop."""

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from drafters.sampling import SamplingParams
from multidraft.bench.measure import Request
from multidraft.bench.suites import SuiteItem
from multidraft.service.batch import BatchJob
from multidraft.service.queue import CALLER, Caller
from multidraft.service.race import RaceJob
from multidraft.serving.callers import visitor_of
from multidraft.serving.guard import Guard
from multidraft.serving.openai.answers import ended_early
from multidraft.serving.operator import Operator
from storage.records import FINISHED
from storage.store import Store
from tests import tiny
from tests.runs import make_run


async def echo(scope, receive, send) -> None:
    await PlainTextResponse("here")(scope, receive, send)


def asked(method: str = "GET", path: str = "/", hosts=("demo.example", "[::1]"), **headers: str):
    return TestClient(Guard(echo, hosts)).request(method, path, headers={k.title(): v for k, v in headers.items()})


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("demo.example", 200),
        ("Demo.Example.:7860", 200),
        ("127.0.0.1:7860", 200),
        ("[::1]:7860", 200),
        ("192.168.1.9", 200),
        ("evil.example", 421),
        ("demo.example.evil.example", 421),
        ("127.0.0.1.nip.io", 421),
        ("", 421),
        ("[x", 421),
    ],
)
def test_other_names_are_refused(host: str, status: int) -> None:
    answer = asked(host=host)
    assert answer.status_code == status
    if status == 421:
        assert "MULTIDRAFT_HOSTS" in answer.json()["detail"]
        assert asked(path="/v1/models", host=host).json()["error"]["type"] == "invalid_request_error"
    assert asked(hosts=("*",), host=host).status_code == 200


def test_pages_of_other_names_may_not_write() -> None:
    assert asked("POST", host="demo.example", origin="https://evil.example").status_code == 421
    assert asked("POST", host="demo.example", origin="null").status_code == 421
    assert asked("POST", host="demo.example", origin="http://localhost:3000", hosts=("localhost",)).status_code == 421
    assert asked("POST", host="localhost", origin="http://localhost:3000", hosts=("localhost",)).status_code == 200
    assert asked("GET", host="demo.example", origin="https://evil.example").status_code == 200


def test_answers_say_what_browsers_may_do() -> None:
    headers = asked(host="demo.example").headers
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["X-Frame-Options"] == "SAMEORIGIN"
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["frame-ancestors"] == policy["connect-src"] == "'self'" and policy["object-src"] == "'none'"
    sandboxed = asked(path="/gradio_api/file=/x.html", host="demo.example").headers["Content-Security-Policy"]
    assert sandboxed == "default-src 'none'; sandbox"
    framed = TestClient(Guard(echo, frames=("https://huggingface.co", "https://*.hf.space"))).get("/").headers
    assert "frame-ancestors 'self' https://huggingface.co https://*.hf.space" in framed["Content-Security-Policy"]
    assert "connect-src 'self' https://huggingface.co" in framed["Content-Security-Policy"]
    assert "X-Frame-Options" not in framed, "it can name no page but the own"
    assert "frame-ancestors *" in TestClient(Guard(echo, frames=("*",))).get("/").headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("host", "visitor"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("testclient", "testclient"),
        (None, "unknown"),
    ],
)
def test_visitors_are_known_by_their_address(host: str | None, visitor: str) -> None:
    assert visitor_of(host) == visitor


def test_an_operator_deletes_runs(workbench, gate) -> None:
    with Store(workbench.store.path) as store:
        for batch in (None, "b", "b"):
            store.add(make_run(batch_id=batch))
    client = TestClient(Starlette(routes=Operator(workbench, "key").routes()))
    assert client.delete("/operator/runs/1").status_code == 401
    client.headers["Authorization"] = "Bearer key"
    for what, deleted in (("runs/1", 1), ("batches/b", 2)):
        assert client.delete(f"/operator/{what}").json() == {"deleted": deleted}
        gone = client.delete(f"/operator/{what}")
        kind = "batch" if "batches" in what else "run"
        assert gone.status_code == 404 and gone.json() == {"detail": f"the history has no such {kind}"}
    assert client.delete("/operator/runs").status_code == 404 and client.get("/operator/runs/1").status_code == 405
    batch = workbench.jobs.submit(
        BatchJob(workbench, [SuiteItem("1", tiny.texts(1)[0])], ["ucb"], SamplingParams(max_new_tokens=8))
    )
    assert client.delete(f"/operator/batches/{batch.id}").status_code == 409, "it has not ended"
    gate.open()
    assert batch.wait(30) and workbench.store.flush()
    assert client.delete(f"/operator/batches/{batch.id}").json() == {"deleted": 1}
    assert workbench.jobs.find(batch.id, BatchJob) is None
    race = RaceJob(workbench, tiny.texts(1)[0], ["ucb", "random"], SamplingParams(max_new_tokens=8))
    assert workbench.jobs.submit(race).wait(30) and workbench.store.flush()
    assert client.delete(f"/operator/runs/{race.runs[0].id}").json() == {"deleted": 1}
    assert workbench.jobs.find(race.id, RaceJob) is None, "the page would show the deleted run"
    workbench.store.path.write_bytes(b"no database" * 100)
    damaged = client.delete("/operator/runs/1")
    assert damaged.status_code == 503 and "damaged" in damaged.json()["detail"]


def test_an_operator_lists_and_stops_jobs(workbench, gate) -> None:
    before = CALLER.set(Caller("203.0.113.9"))
    first, second = (
        workbench.submit(Request(prompt, "ucb", SamplingParams(max_new_tokens=8))) for prompt in tiny.texts(2, 20, 3)
    )
    CALLER.reset(before)
    client = TestClient(Starlette(routes=Operator(workbench, "key").routes()))
    assert client.get("/operator/jobs").status_code == 401
    assert client.delete("/operator/jobs", headers={"Authorization": "Bearer wrong"}).status_code == 401
    client.headers["Authorization"] = "bearer key"  # a scheme's name in any case
    listed = client.get("/operator/jobs").json()["jobs"]
    assert [job["id"] for job in listed] == [first.id, second.id] and listed[1]["ahead"] == 1
    assert listed[0]["visitor"] == "203.0.113.9" and listed[0]["kind"] == "run"
    assert client.get("/operator/jobs?visitor=198.51.100.1").json() == {"jobs": []}
    misspelt = client.delete("/operator/jobs?vistor=198.51.100.1")  # which would choose all jobs
    assert misspelt.status_code == 400 and "unknown parameter 'vistor'" in misspelt.json()["detail"]
    assert client.delete(f"/operator/jobs/{second.id}").status_code == 200 and second.wait(30)
    assert client.delete(f"/operator/jobs/{second.id}").status_code == 404
    client.delete("/operator/jobs")
    gate.open()
    assert first.wait(30) and first.cancelled.is_set()
    assert first.run.generation.error == "ended early: the operator of this server stopped it"
    assert ended_early(first).status == 400, "or clients would ask for it again"


def test_an_answer_that_was_complete_when_it_was_stopped_has_no_error(workbench) -> None:
    job = workbench.submit(Request("abc", "ucb", SamplingParams(max_new_tokens=4)))
    assert job.wait(30)
    job.end_early("ended early")
    assert job.run.generation.status in FINISHED and job.run.generation.error is job.error is None
