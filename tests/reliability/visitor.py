"""What a visitor of the page and a program that uses its API do, over HTTP."""

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx


class Refused(Exception):
    """The server said no: its message."""


class Visitor:
    """One of them, on a connection of its own.

    Args:
        config: Gradio's description of the page, ``GET /config``.
    """

    def __init__(self, http: httpx.Client, config: Mapping[str, Any]):
        self.http = http
        self.components = {component["id"]: component for component in config["components"]}
        self.numbers = {c["props"].get("elem_id"): number for number, c in self.components.items()}
        self.events = config["dependencies"]

    def called(self, name: str, *values: Any) -> Iterator[Any]:
        """What an endpoint of the API sends.

        Raises:
            Refused: an error, or that nobody may wait any more.
        """
        id = answered(self.http.post(f"/gradio_api/call/{name}", json={"data": values}))["event_id"]
        kind = ""
        with self.http.stream("GET", f"/gradio_api/call/{name}/{id}") as answer:
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    kind = line[7:]
                elif line.startswith("data: "):
                    found = json.loads(line[6:])
                    if kind == "error":
                        raise Refused(str(found.get("error") if isinstance(found, dict) else found))
                    if found:
                        yield found[0]

    def upload(self, name: str, content: bytes) -> dict[str, Any]:
        """Send a file; it is returned as the page's events take it."""
        (path,) = answered(self.http.post("/gradio_api/upload", files={"files": (name, content)}))
        return {"path": path, "meta": {"_type": "gradio.FileData"}}

    def event(self, elem_id: str, kind: str = "click") -> dict[str, Any]:
        """That of a control, as the page knows it."""
        return self._first([self.numbers[elem_id], kind])

    def loads(self) -> Iterator[dict[str, Any]]:
        """All that happens when the page is opened, and what that leads to."""
        opened = {e["id"] for e in self.events if any(kind == "load" for _, kind in e["targets"])}
        return (e for e in self.events if {e["id"], e["trigger_after"]} & opened and e["backend_fn"])

    def _first(self, target: list[Any]) -> dict[str, Any]:
        return next(e for e in self.events if target in e["targets"] and e["backend_fn"])

    def happens(self, event: Mapping[str, Any], query: str = "", **given: Any) -> Iterator[dict[str, Any]]:
        """What the page is sent when an event happens on it.

        Args:
            query: of the page's address.
            given: values of fields by their ids, with ``_`` for ``-``; all others have those of a new page.

        Raises:
            Refused: an error, or that nobody may wait any more.
        """
        values = self._values(event, given)
        yield from self.sent(event["id"], values, query) if event["queue"] else self._asked(event["id"], values, query)

    def opens(self, query: str = "") -> Iterator[dict[str, Any]]:
        """What the page is sent when it is opened: all that waits in the queue at once, as a browser asks for it.

        Raises:
            Refused: what went wrong, after the last of them has ended.
        """
        waiting = []
        for event in self.loads():
            values = self._values(event, {})
            if event["queue"]:
                waiting.append((event["id"], values))
            else:
                yield from self._asked(event["id"], values, query)
        yield from self._sent(waiting, query)

    def _asked(self, event: int, values: list[Any], query: str) -> Iterator[dict[str, Any]]:
        asked = {"data": values, "fn_index": event, "session_hash": secrets.token_hex(6)}
        yield {"output": answered(self.http.post(f"/gradio_api/run/predict{query}", json=asked))}

    def sent(self, event: int, values: list[Any], query: str = "") -> Iterator[dict[str, Any]]:
        """Likewise as :meth:`happens`, by the event's number, with all values of its inputs."""
        yield from self._sent([(event, values)], query)

    def _values(self, event: Mapping[str, Any], given: Mapping[str, Any]) -> list[Any]:
        fields = [self.components[number]["props"] for number in event["inputs"]]
        named = {name.replace("_", "-"): value for name, value in given.items()}
        return [named.get(f.get("elem_id"), f.get("value")) for f in fields]

    def _sent(self, events: Sequence[tuple[int, list[Any]]], query: str) -> Iterator[dict[str, Any]]:
        session, left, errors = secrets.token_hex(6), len(events), []
        for event, values in events:
            asked = {"data": values, "fn_index": event, "session_hash": session}
            answered(self.http.post(f"/gradio_api/queue/join{query}", json=asked))
        with self.http.stream("GET", "/gradio_api/queue/data", params={"session_hash": session}) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    yield (message := json.loads(line[6:]))
                    if message["msg"] == "process_completed":
                        left -= 1
                        if not message["success"]:
                            errors.append(str((message.get("output") or {}).get("error")))
                        if not left:
                            break
        if errors:
            raise Refused("\n".join(errors))

    def clicks(self, button: str, **given: Any) -> Iterator[dict[str, Any]]:
        """What the page is sent when a button is pressed."""
        return self.happens(self.event(button), **given)

    def starts(self, button: str, **given: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """The id of a job that a button starts, with what the page is sent until it has ended.

        Raises:
            Refused: it was not started; what the page says.
        """
        event = self.event(button)
        *_, last = self.happens(event, **given)
        id, status, *_ = last["output"]["data"]
        if not isinstance(id, str) or not id:
            raise Refused(str(status))
        for message in self.sent(self._first([event["outputs"][0], "change"])["id"], [id]):
            yield id, message

    def shown(self, event: Mapping[str, Any], last: Mapping[str, Any], elem_id: str) -> Any:
        """What the last message of an event says of a component."""
        return last["output"]["data"][event["outputs"].index(self.numbers[elem_id])]


def answered(answer: httpx.Response) -> Any:
    """An answer's JSON.

    Raises:
        Refused: the server says that it is too much now.
    """
    if answer.status_code in (429, 503):
        raise Refused(answer.text)
    return answer.raise_for_status().json()
