"""What OpenAI's own client gets, and what is in the history then."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import httpx
import openai
import pytest
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from starlette.applications import Starlette

from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import generate
from multidraft.service.workbench import Workbench
from multidraft.serving.openai import server as servers
from multidraft.serving.openai.requests import CompletionAsked
from storage.run import Run
from storage.store import Store
from tests import tiny
from tests.history import recorded

GREEDY = {"model": "tiny", "temperature": 0}
PROMPT = "abc abd"


def test_a_completion_is_the_targets_text_with_its_figures(
    client: openai.OpenAI, pool: Pool, workbench: Workbench, store: Store
) -> None:
    answer = client.completions.create(prompt=PROMPT, max_tokens=20, **GREEDY, extra_body={"policy": "round-robin"})
    until_scored(workbench)
    out = generate(pool.twin(), PROMPT, "round-robin", SamplingParams(20, draft_length=pool.draft_length))
    Completion.model_validate(answer.model_dump(), strict=True)
    assert answer.choices[0].text == out.text and answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 20 and answer.usage.prompt_tokens == len(pool.encode(PROMPT))
    told = answer.metrics["speculative_decoding"]
    drafted = [r for r in out.rounds if r.drafted]
    accepted = sum(r.accepted for r in drafted)
    assert told["num_spec_steps"] == len(drafted) == sum(told["acceptance_histogram"])
    assert told["num_accepted_draft_tokens"] == accepted > 0
    assert told["num_draft_tokens"] == sum(len(r.drafted) for r in drafted)
    assert told["mean_acceptance_length"] == pytest.approx(1 + accepted / len(drafted))
    assert told["draft_acceptance_rate"] == pytest.approx(out.acceptance_rate)
    assert len(told["acceptance_histogram"]) == told["num_spec_tokens"] + 1 == pool.draft_length + 1
    by_drafter = answer.metrics["drafters"].values()
    assert sum(d["num_accepted_draft_tokens"] for d in by_drafter) == accepted
    assert answer.metrics["drafter_shares"] == pytest.approx(out.drafter_shares)
    run = the_run(store)
    assert (run.origin.source, run.generation.text, run.generation.policy) == ("api", out.text, "round-robin")
    assert run.generation.acceptance_rate == pytest.approx(told["draft_acceptance_rate"])
    assert run.scores.lossless and run.scores.regret_rounds is not None, "nothing else waited"


def test_an_answer_may_be_kept_from_those_that_learn(client: openai.OpenAI, workbench, store: Store) -> None:
    client.completions.create(prompt=PROMPT, max_tokens=4, **GREEDY, extra_body={"store": False})
    until_scored(workbench)
    assert the_run(store).origin.learn is False


def until_scored(workbench: Workbench) -> None:
    """A text is sent before it is scored, on the same caches and if nothing else waits for them, and recorded anew."""
    while workbench.jobs.counts[0]:
        time.sleep(0.01)


def the_run(store: Store) -> Run:
    assert store.flush()
    (run,) = recorded(store.path)
    return run


def test_a_stream_says_the_same(client: openai.OpenAI) -> None:
    asked = {**GREEDY, "prompt": PROMPT, "max_tokens": 20, "logprobs": 2}
    asked["extra_body"] = {"policy": "round-robin"}
    whole = client.completions.create(**asked)
    *parts, last = client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    for part in (parts[-1], last):  # before the end the reason is null, which the type of the client does not know
        Completion.model_validate(part.model_dump(), strict=True)
    assert "".join(part.choices[0].text for part in parts) == whole.choices[0].text
    most = whole.metrics["num_rounds"] + 1  # the end may be told by itself
    assert 1 < len(parts) <= most, "a part for each round, or for some where they come fast"
    assert parts[-1].choices[0].finish_reason == "length" and last.choices == []
    assert last.usage == whole.usage and all(part.usage is None for part in parts)
    assert last.metrics["speculative_decoding"] == whole.metrics["speculative_decoding"]
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        told = [value for part in parts for value in getattr(part.choices[0].logprobs, name)]
        assert told == getattr(whole.choices[0].logprobs, name)


def test_chat_and_its_stream(client: openai.OpenAI) -> None:
    asked = {**GREEDY, "messages": [{"role": "user", "content": PROMPT}], "max_completion_tokens": 12}
    whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    ChatCompletion.model_validate(whole.model_dump(), strict=True)
    assert whole.choices[0].message.role == "assistant" and whole.usage.completion_tokens == 12
    tokens = whole.choices[0].logprobs.content
    assert "".join(token.token for token in tokens) == whole.choices[0].message.content
    assert all(token.top_logprobs[0].logprob >= token.logprob for token in tokens)
    parts = list(client.chat.completions.create(**asked, stream=True))
    for part in parts:
        ChatCompletionChunk.model_validate(part.model_dump(), strict=True)
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(part.choices[0].delta.content or "" for part in parts) == whole.choices[0].message.content
    assert [part.choices[0].finish_reason for part in parts][-1] == "length" and not hasattr(parts[-1], "metrics")


def test_usage_so_far_is_told_on_demand(http: httpx.Client) -> None:
    asked = {**GREEDY, "prompt": PROMPT, "max_tokens": 9, "stream": True}
    body = http.post("/v1/completions", json={**asked, "stream_options": {"continuous_usage_stats": True}}).text
    parts = [json.loads(line.removeprefix("data: ")) for line in body.strip().split("\n\n")[:-1]]
    counts = [part["usage"]["completion_tokens"] for part in parts]
    assert counts == sorted(counts) and counts[-1] == 9 and body.endswith("data: [DONE]\n\n")


def test_a_stop_text_ends_it_and_is_not_told(client: openai.OpenAI) -> None:
    whole = client.completions.create(prompt=PROMPT, max_tokens=30, **GREEDY).choices[0].text
    stop = whole[11:14]
    asked = {**GREEDY, "prompt": PROMPT, "max_tokens": 30, "stop": ["never", stop]}
    cut = client.completions.create(**asked).choices[0]
    assert (cut.text, cut.finish_reason) == (whole[: whole.index(stop)], "stop")
    parts = list(client.completions.create(**asked, stream=True))
    assert "".join(part.choices[0].text for part in parts) == cut.text
    asked["extra_body"] = {"ignore_eos": True, "min_tokens": len(cut.text) + len(stop)}
    kept = client.completions.create(**asked).choices[0].text
    assert kept.startswith(cut.text + stop), "within so many tokens it is passed over"
    parts = list(client.completions.create(**asked, stream=True))
    assert "".join(part.choices[0].text for part in parts) == kept


def test_several_texts_of_several_prompts(client: openai.OpenAI, pool: Pool, store: Store) -> None:
    asked: dict[str, Any] = {"model": "tiny", "temperature": 1.0, "max_tokens": 8, "n": 2, "seed": 5}
    asked["extra_body"] = {"policy": "round-robin"}  # the default decides by the clock, and so when there are draws
    answer = client.completions.create(prompt=[PROMPT, "a"], **asked)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3] and answer.metrics is None
    assert answer.usage.prompt_tokens == len(pool.encode(PROMPT)) + len(pool.encode("a"))
    assert answer.usage.completion_tokens == 32
    texts = [choice.text for choice in answer.choices]
    assert texts == [choice.text for choice in client.completions.create(prompt=[PROMPT, "a"], **asked).choices]
    for seed in (5, 6):
        alone = client.completions.create(prompt=PROMPT, **{**asked, "n": 1, "seed": seed})
        assert alone.choices[0].text == texts[seed - 5]
    parts = list(client.completions.create(prompt=[PROMPT, "a"], **asked, stream=True))
    streamed = ["".join(p.choices[0].text for p in parts if p.choices[0].index == i) for i in range(4)]
    assert streamed == texts
    assert store.flush() and {run.seed for run in recorded(store.path)} == {5, 6}


def test_token_ids_and_the_echo_of_a_prompt(client: openai.OpenAI, pool: Pool) -> None:
    ids = pool.encode(PROMPT)
    asked = {**GREEDY, "logprobs": 1, "echo": True}
    read = client.completions.create(prompt=ids, max_tokens=0, **asked).choices[0]
    assert read.text == PROMPT and read.logprobs.token_logprobs[0] is None
    assert len(read.logprobs.tokens) == len(ids) and "".join(read.logprobs.tokens) == PROMPT
    both = client.completions.create(prompt=[ids], max_tokens=1, **asked).choices[0]
    assert both.logprobs.token_logprobs[1:-1] == pytest.approx(read.logprobs.token_logprobs[1:])
    alone = client.completions.create(prompt=PROMPT, max_tokens=1, **GREEDY, logprobs=1).choices[0]
    assert both.text == PROMPT + alone.text
    assert both.logprobs.token_logprobs[-1] == pytest.approx(alone.logprobs.token_logprobs[0], abs=1e-4)
    parts = list(client.completions.create(prompt=ids, max_tokens=3, **asked, stream=True))
    assert "".join(part.choices[0].text for part in parts).startswith(both.text)


def test_an_answer_keeps_the_space_of_its_first_word(client: openai.OpenAI, pool: Pool, monkeypatch) -> None:
    monkeypatch.setattr(pool, "tokenizer", tiny.spaced_tokenizer())
    ids, asked = [2, 3, 4], {**GREEDY, "logprobs": 0, "max_tokens": 3}
    alone = client.completions.create(prompt=ids, **asked).choices[0]
    both = client.completions.create(prompt=ids, **asked, echo=True).choices[0]
    assert alone.text[0] == " " and both.text == pool.decode(ids) + alone.text
    starts = [offset - len(pool.decode(ids)) for offset in both.logprobs.text_offset[3:]]
    assert alone.logprobs.text_offset == starts == [0, 2, 4]


@pytest.mark.parametrize("before", [[], [{"role": "system", "content": "b"}]])
def test_an_answer_in_chat_form_begins_a_text(client: openai.OpenAI, pool: Pool, monkeypatch, before) -> None:
    monkeypatch.setattr(pool, "tokenizer", tiny.spaced_tokenizer())
    pool.tokenizer.chat_template = "{{ messages }}"
    for method in ("encode", "encode_messages"):
        monkeypatch.setattr(pool, method, lambda *_: [2, 3, 4])
    messages = [*before, {"role": "user", "content": "a"}]
    (whole,) = client.chat.completions.create(messages=messages, max_tokens=3, **GREEDY).choices
    assert whole.message.content[0] != " " == whole.message.content[1]


@pytest.mark.parametrize("off", [{"draft_length": 0}, {"policy": "autoregressive"}])
def test_drafting_can_be_turned_off(client: openai.OpenAI, off: dict[str, Any]) -> None:
    asked = {**GREEDY, "prompt": PROMPT, "max_tokens": 12}
    plain = client.completions.create(**asked, extra_body=off)
    assert plain.choices[0].text == client.completions.create(**asked, extra_body={"draft_length": 3}).choices[0].text
    assert plain.metrics["speculative_decoding"]["num_spec_steps"] == 0 and plain.metrics["num_rounds"] == 12
    assert plain.metrics["speculative_decoding"]["mean_acceptance_length"] == 1.0
    assert plain.metrics["speculative_decoding"]["num_spec_tokens"] == 0


def test_models(client: openai.OpenAI, http: httpx.Client) -> None:
    (model,) = client.models.list()
    Model.model_validate(model.model_dump(), strict=True)
    assert model.id == "tiny" and client.models.retrieve("tiny").max_model_len == 64
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-4o' here") as caught:
        client.models.retrieve("gpt-4o")
    assert caught.value.code == "model_not_found"
    assert http.get("/health").status_code == 200
    answer = client.completions.create(model="gpt-4o", prompt=PROMPT, max_tokens=2)
    assert answer.model == "tiny", "whatever name a script has, the answer says who answered"


def test_a_key_is_asked_for(serve) -> None:
    address = serve(key="secret") + "/v1"
    for key in ("wrong", "sécret"):
        answer = httpx.get(f"{address}/models", headers={"Authorization": f"Bearer {key}".encode()})
        assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key"
    with pytest.raises(openai.AuthenticationError, match="not valid here"):
        openai.OpenAI(base_url=address, api_key="wrong", max_retries=0).completions.create(model="", prompt="a")
    assert [model.id for model in openai.OpenAI(base_url=address, api_key="secret").models.list()] == ["tiny"]


def test_sixteen_at_once(client: openai.OpenAI, pool: Pool) -> None:
    prompts = [PROMPT + letter for letter in "abcdefgh"] * 2

    def ask(prompt: str) -> str:
        return client.completions.create(prompt=prompt, max_tokens=16, **GREEDY).choices[0].text

    with ThreadPoolExecutor(16) as threads:
        texts = list(threads.map(ask, prompts))
    params = SamplingParams(16, draft_length=pool.draft_length)
    pool = pool.twin()  # the server may still score what it has answered
    assert texts == [generate(pool, prompt, "autoregressive", params).text for prompt in prompts]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_ends_its_texts(http: httpx.Client, workbench, gate, stream: bool) -> None:
    asked = {"prompt": PROMPT, "max_tokens": 50, "n": 2, "stream": stream}
    with pytest.raises(httpx.ReadTimeout), http.stream("POST", "/v1/completions", json=asked, timeout=0.3) as answer:
        answer.read()
    assert gate.reached.wait(30)
    jobs = list(workbench.jobs._found.values())
    assert jobs and all(job.cancelled.wait(30) for job in jobs), "the second may not even have begun"
    gate.open()
    assert all(job.wait(30) for job in jobs)
    assert max(len(job.run.generation.rounds) for job in jobs) <= 1
    assert http.post("/v1/completions", json={"prompt": "abc", "max_tokens": 2}).status_code == 200


def test_a_client_that_goes_while_it_asks_is_no_failure(workbench, caplog: pytest.LogCaptureFixture) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        assert message.get("status") in (None, servers.CLOSED)

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": [], "query_string": b""}
    anyio.run(Starlette(routes=servers.Server(workbench).routes()), scope, receive, send)
    assert not caplog.records


def test_an_answer_is_of_the_pool_that_it_began_with(http, workbench, store, other_card: Path, monkeypatch) -> None:
    read, other = CompletionAsked.prompts, tiny.load(other_card)

    def exchanged(*asked: Any) -> Any:
        workbench.pool = other
        return read(*asked)

    monkeypatch.setattr(CompletionAsked, "prompts", exchanged)
    answer = http.post("/v1/completions", json={"prompt": "abc", "max_tokens": 4, "echo": True, "logprobs": 0}).json()
    until_scored(workbench)
    run = the_run(store)
    assert answer["model"] == run.conditions.pool == "tiny" and run.generation.drafters != tuple(other.drafter_names)


def test_failures_are_told(http: httpx.Client, workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(workbench.pool.target, "score", lambda draft: 1 / 0)
        answer = http.post("/v1/completions", json={"prompt": "abc"})
        assert answer.status_code == 500 and "ZeroDivisionError" in answer.json()["error"]["message"]
        body = http.post("/v1/completions", json={"prompt": "abc", "stream": True}).text
        assert '"type":"server_error"' in body and body.endswith("data: [DONE]\n\n")
    workbench.close()
    answer = http.post("/v1/completions", json={"prompt": "abc"})
    assert answer.status_code == 503 and "shutting down" in answer.json()["error"]["message"]
