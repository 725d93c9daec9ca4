"""Requests as they come, good and bad."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from drafters.errors import PromptError
from drafters.pool import Pool, load_pool
from multidraft.service.workbench import Workbench
from multidraft.serving.openai.answers import released
from multidraft.serving.openai.errors import ApiError
from multidraft.serving.openai.requests import ChatAsked, CompletionAsked, read
from storage.store import Store
from tests.multidraft.serving.openai.conftest import served

TEMPLATE = (
    "{% for m in messages %}{{ {'user': 'a', 'assistant': 'b', 'system': 'c'}[m.role] }}{{ m.content }}{% endfor %}i"
)


@pytest.fixture(scope="module")
def http(pool_card: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of servers that all these tests share: none of them decodes anything."""
    with Store(tmp_path_factory.mktemp("requests") / "runs.db") as store:
        workbench = Workbench(load_pool(pool_card), store)
        with served(workbench) as address, httpx.Client(base_url=address, timeout=60) as client:
            yield client
        workbench.close()


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"prompt": ""}, "prompt", "the prompt is empty"),
        ({"prompt": []}, "prompt", "the prompt is empty"),
        ({}, "prompt", "prompt is missing"),
        ({"prompt": [99]}, "prompt", "token id 99 is not one of the target's"),
        ({"prompt": {"text": "a"}}, "prompt", "prompt: input should be a valid string"),
        ({"prompt": "a" * 99}, "prompt", "context window"),
        ({"prompt": [3] * 65, "echo": True, "logprobs": 1, "max_tokens": 0}, "prompt", "the text has 65 tokens, but"),
        ({"policy": "nonsense"}, "policy", "choose one of"),
        ({"policy": 3}, "policy", "should be a valid string, got 3"),
        ({"draft_length": 65}, "draft_length", "draft_length must be at most 64, got 65"),
        ({"draft_length": -1}, "draft_length", "draft_length must be at least 1, or 0 for no drafts"),
        ({"max_tokens": -1}, "max_tokens", "max_tokens must be at least 1, got -1"),
        ({"max_tokens": 0}, "max_tokens", "only be 0 with echo"),
        ({"max_tokens": "9"}, "max_tokens", "valid integer, got '9'"),
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"temperature": 9}, "temperature", "less than or equal to 2"),
        ({"top_p": 1.5}, "top_p", "top_p must be above 0 and at most 1, got 1.5"),
        ({"top_k": -2}, "top_k", "top_k must be at least 1"),
        ({"seed": 2**63}, "seed", "should be less than 9223372036854775808"),
        ({"n": 0}, "n", "greater than or equal to 1"),
        ({"n": 2, "best_of": 3}, "best_of", "best_of must be n"),
        ({"logprobs": 21}, "logprobs", "less than or equal to 20"),
        ({"stop": ["a", ""]}, "stop", "empty text"),
        ({"stop": ["a"] * 33}, "stop", "at most 32 texts"),
        ({"stop": ["b" * 1001]}, "stop", "may have 1,000 characters, got 1,001"),
        ({"stop": "b" * 1001}, "stop", "may have 1,000 characters, got 1,001"),
        ({"prompt": [{}] * 9999}, "prompt", "prompt: input should be a valid"),
        ({"min_tokens": 4}, "min_tokens", "only offered together with ignore_eos"),
        ({"min_tokens": -1}, "min_tokens", "greater than or equal to 0"),
        (
            {"min_tokens": 9, "max_tokens": 8, "ignore_eos": True},
            "min_tokens",
            "min_tokens must be at most max_tokens (8), got 9",
        ),
        (
            {"frequency_penalty": 0.5},
            "frequency_penalty",
            "frequency_penalty 0.5 is not supported: leave it out, or give 0",
        ),
        ({"logit_bias": {"5": 1}}, "logit_bias", "is not supported: leave it out, or give {}"),
        ({"suffix": "end"}, "suffix", "is not supported"),
        (
            {"draft_lenght": 3},
            "draft_lenght",
            "unrecognized request argument: draft_lenght; did you mean draft_length?",
        ),
        ({"weather": 3}, "weather", "unrecognized request argument: weather"),
        (
            {"stream": True, "stream_options": {"include_usag": True}},
            "stream_options.include_usag",
            "argument: stream_options.include_usag; did you mean stream_options.include_usage?",
        ),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options", "should be a valid boolean"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "only allowed when stream is true"),
    ],
)
def test_a_bad_field_is_named(http: httpx.Client, fields: dict[str, Any], param: str | None, said: str) -> None:
    asked = {"prompt": "abc", **fields} if fields else {}
    answer = http.post("/v1/completions", json=asked)
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["type"] == "invalid_request_error"
    assert said in error["message"] and error["param"] == param


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"messages": []}, "messages", "messages is empty"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages", "'system', 'developer', 'user' or 'assistant'"),
        ({"messages": [{"role": "user"}]}, "messages", "messages.0.content is missing"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "messages", "must be the user's"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages", "should be 'text'"),
        ({"tools": [{"type": "function"}]}, "tools", "is not supported: leave it out, or give []"),
        ({"response_format": {"type": "json_object"}}, "response_format", 'leave it out, or give {"type": "text"}'),
        ({"top_logprobs": 2}, "top_logprobs", "needs logprobs"),
        ({"max_completion_tokens": 0}, "max_completion_tokens", "at least 1"),
        ({"max_completion_tokens": -1}, "max_completion_tokens", "max_completion_tokens must be at least 1, got -1"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages", "the prompt is empty"),
        ({"messages": [3]}, "messages", "messages.0: input should be an object with named fields, got 3"),
        (
            {"messages": [{"role": "user", "content": [3]}]},
            "messages",
            "messages.0.content.0: input should be an object",
        ),
    ],
)
def test_a_bad_conversation_too(http: httpx.Client, fields: dict[str, Any], param: str, said: str) -> None:
    answer = http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "abc"}], **fields})
    error = answer.json()["error"]
    assert answer.status_code == 400 and said in error["message"] and error["param"] == param


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"[1]", b"\xff", b'"prompt"'])
def test_what_is_no_request(http: httpx.Client, body: bytes) -> None:
    answer = http.post("/v1/completions", content=body)
    assert answer.status_code == 400 and "the body" in answer.json()["error"]["message"]


@pytest.mark.parametrize("digits", [400, 5000])
@pytest.mark.parametrize("field", ["seed", "best_of", "top_k", "draft_length", "prompt", "temperature"])
def test_a_number_of_many_digits_is_wrong_where_it_stands(http: httpx.Client, field: str, digits: int) -> None:
    number = "-" + "9" * digits
    asked = {"prompt": '"abc"', field: f"[{number}]" if field == "prompt" else number}
    body = ", ".join(f'"{name}": {value}' for name, value in asked.items())
    error = http.post("/v1/completions", content=f"{{{body}}}").json()["error"]
    assert error["param"] == field and len(error["message"]) < 200


def test_what_is_nowhere(http: httpx.Client) -> None:
    error = http.post("/v1/responses", json={}).json()["error"]
    assert error["type"] == "not_found_error"
    assert error["message"].startswith("there is no /v1/responses here, only /v1/chat/completions")
    refused = http.get("/v1/completions")
    assert refused.status_code == 405 and refused.headers["Allow"] == "POST"
    assert refused.json()["error"]["message"] == "/v1/completions takes POST, not GET"


@pytest.mark.parametrize("path", ["/chat/completions", "/completions", "/models"])
def test_an_address_without_v1_is_told_that_it_is_missing(http: httpx.Client, path: str) -> None:
    for answer in (http.post(path, json={}), http.get(path)):
        assert answer.status_code == 404 and f"only /v1{path}" in answer.json()["error"]["message"]


def test_what_asks_for_what_is_done_anyway_is_taken() -> None:
    usual = {"frequency_penalty": 0.0, "logit_bias": {}, "best_of": 1, "stop": None, "min_p": 0, "user": "me"}
    asked = read(CompletionAsked, json.dumps({"prompt": "a", "model": "x", **usual}).encode())
    hint = {"stream": True, "stream_options": {"include_obfuscation": False}}
    assert read(CompletionAsked, json.dumps({"prompt": "a", **hint}).encode()).stream
    assert asked.stops == () and asked.temperature == 1.0 and asked.max_tokens == 16
    chat = {"messages": [{"role": "user", "content": "a", "name": "me"}], "tools": [], "reasoning_effort": "low"}
    assert read(ChatAsked, json.dumps({**chat, "ignore_eos": True, "min_tokens": 9}).encode()).min_tokens == 9
    assert (
        read(ChatAsked, json.dumps({**chat, "max_tokens": 7, "max_completion_tokens": 9}).encode()).most(None, None)
        == 9
    )


def test_a_negative_seed_is_another_one() -> None:
    asked = {"prompt": "a", "n": 2}
    assert CompletionAsked(**asked, seed=-1).seeds == [2**63 - 1, 0]


def test_seeds_are_those_after_the_first_or_any() -> None:
    assert CompletionAsked(prompt="a", seed=7, n=3).seeds == [7, 8, 9]
    assert CompletionAsked(prompt="a").seeds != CompletionAsked(prompt="a").seeds


def chat(*messages: tuple[str, Any]) -> ChatAsked:
    return ChatAsked.model_validate({"messages": [{"role": role, "content": text} for role, text in messages]})


@pytest.fixture
def talking(pool_card: Path, tmp_path: Path) -> Pool:
    """A pool that holds conversations."""
    content = yaml.safe_load(pool_card.read_text())
    for entry in (content["target"], *content["drafters"]):
        if "path" in entry:
            entry["path"] = str(pool_card.parent / entry["path"])
    path = tmp_path / "card.yaml"
    path.write_text(yaml.safe_dump({**content, "chat_template": TEMPLATE}))
    return load_pool(path)


def test_a_conversation_in_the_targets_form(talking: Pool) -> None:
    assert chat(("user", "d"), ("assistant", "e"), ("user", "f")).prompts(talking) == [("f", (("d", "e"),))]
    assert talking.decode(talking.encode("f", [("d", "e")])) == "adbeafi"
    ((ids, turns),) = chat(("developer", "d"), ("user", [{"type": "text", "text": "e"}])).prompts(talking)
    assert talking.decode(ids) == "cdaei" and turns == ()
    ((ids, _),) = CompletionAsked(prompt="de").prompts(talking)
    assert talking.decode(ids) == "de", "a completion goes on with the text as it stands"
    with pytest.raises(PromptError, match="character 2 of the prompt is half of one"):
        CompletionAsked(prompt="d\ud800").prompts(talking)


def test_a_pool_for_single_prompts_takes_instructions_and_question_as_one(pool: Pool) -> None:
    assert chat(("system", "d"), ("user", "e")).prompts(pool) == [("d\n\ne", ())]
    with pytest.raises(PromptError, match="answers single prompts"):
        chat(("system", "a"), ("user", "d"), ("assistant", "e"), ("user", "f")).prompts(pool)


def test_what_is_released_while_a_text_grows() -> None:
    stops = ["end", "nd!"]
    for text, shown in [("ab", 2), ("abe", 2), ("aben", 2), ("abn", 2), ("abend", 2), ("abendx", 2), ("abet", 4)]:
        assert released(text, stops, ended=False) == shown
    assert [released("abendxen", stops, kept, ended=False) for kept in (4, 5)] == [2, 6]
    assert released("aben", stops, ended=True) == 4 and released("abend", stops, ended=True) == 2


def test_other_errors_are_not_told_in_full() -> None:
    assert ApiError.of(RuntimeError("secret")).form()["error"]["message"] == "the server failed; see its log"
