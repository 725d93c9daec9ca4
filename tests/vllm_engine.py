"""The proposer in a real vLLM on the CPU: ``make test-vllm`` runs this in an environment of its own.

Each engine is a process of its own, since one cannot hold several: ``python -m tests.vllm_engine METHOD …`` prints the
outputs, their seconds and what the proposer recorded as JSON. What the ordinary tests replay was recorded by

    python -m tests.vllm_engine ours --pool tests/multidraft/serving/data/counting.yaml --policy round-robin \\
        --streams 3 --blocks 14 --prompts 5 --tokens 64 --calls --out tests/multidraft/serving/data/vllm-0.32.json
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
LENGTH, TOKENS = 12, 96
OURS = {"method": "custom_class", "model": "multidraft.serving.vllm.MultiDraft", "num_speculative_tokens": LENGTH}
NGRAM = {"method": "ngram", "num_speculative_tokens": LENGTH, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
METHODS = {"plain": None, "ngram": NGRAM, "ours": OURS}
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine is in this process, where the proposer can be looked at
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
}


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Decode prompts of the pocket pool by vLLM.")
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("--policy", default="rate-hedge")
    parser.add_argument("--pool", default="pocket", help="a card for the pocket target")
    parser.add_argument("--streams", type=int, default=1, help="requests at once")
    parser.add_argument("--ranks", type=int, default=1, help="of tensor parallelism, each a process")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=TOKENS, help="most tokens of an answer")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0], help="of the texts, in turn")
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--texts", type=int, default=1, help="for each prompt, by seeds of their own")
    parser.add_argument("--repeat", type=int, default=1, help="passes over the prompts; the last one is timed")
    parser.add_argument("--blocks", type=int, help="of 32 tokens in the cache: few make vLLM preempt requests")
    parser.add_argument("--unmended", action="store_true", help="leave vLLM's sampling as it is")
    parser.add_argument("--calls", action="store_true", help="record the calls of the proposer")
    parser.add_argument("--out", type=Path, help="write the JSON there, and print the speed alone")
    return parser


def main() -> None:
    """Decode, and print what came of it."""
    given = options().parse_args()
    os.environ.update(ENVIRONMENT, MULTIDRAFT_POOL=given.pool, MULTIDRAFT_POLICY=given.policy)
    from vllm import LLM, SamplingParams

    from drafters.text import chat_ids
    from multidraft.bench.suites import load_suite, spread
    from multidraft.serving import vllm

    if given.unmended:
        vllm.mend_sampling = lambda: False
    vllm.ENDED_AFTER = float("inf")  # requests stay, however slow the machine is, until their rounds have been read
    items = spread(load_suite("pocket").items, given.prompts)
    target = ROOT / "drafters" / "pocket" / "target"
    extra = {"num_gpu_blocks_override": given.blocks, "block_size": 32, "max_model_len": 256} if given.blocks else {}
    extra |= {"tensor_parallel_size": given.ranks, "distributed_executor_backend": "mp"} if given.ranks > 1 else {}
    llm = LLM(
        str(target),
        dtype="float32",
        enforce_eager=True,
        max_num_seqs=given.streams,
        enable_prefix_caching=False,
        speculative_config=METHODS[given.method],
        disable_log_stats=True,
        **extra,
    )
    tokenizer = llm.get_tokenizer()
    prompts = [{"prompt_token_ids": chat_ids(tokenizer, item.prompt)} for item in items for _ in range(given.texts)]
    params = [
        SamplingParams(temperature=temperature, top_k=given.top_k, max_tokens=given.tokens, seed=seed)
        for seed, (temperature, _) in enumerate(zip(cycle(given.temperature), prompts))
    ]
    llm.generate(prompts[:1], params[0], use_tqdm=False)
    proposer, calls = None, []
    if given.method == "ours" and given.ranks == 1:  # of several, the proposer is out of reach
        core = llm.llm_engine.engine_core.engine_core
        proposer = core.model_executor.driver_worker.worker.model_runner.drafter
        if given.calls:
            proposer.propose = _recording(proposer.propose, calls)
    for _ in range(given.repeat):
        if proposer:
            for request in proposer._waiting():
                proposer._drop(request)
        begun = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - begun
    found: dict[str, Any] = {
        "prompts": [prompt["prompt_token_ids"] for prompt in prompts],
        "outputs": [list(output.outputs[0].token_ids) for output in outputs],
        "seconds": seconds,
        "tokens_per_second": sum(len(output.outputs[0].token_ids) for output in outputs) / seconds,
        "calls": calls,
        "vocabulary": len(tokenizer),
    }
    if proposer:
        decodings = [request.decoding for request in proposer._waiting() if request.decoding]
        found["drafts"] = [
            (len(r.drafted), r.accepted) for one in decodings for r in one.generation.rounds if r.drafted
        ]
        found["rounds"] = {
            json.dumps(one.context[: one.generation.prompt_tokens]): [
                [r.drafter, list(r.drafted), r.accepted, list(r.tokens)] for r in one.generation.rounds
            ]
            for one in decodings
        }
    print(json.dumps({key: value for key, value in found.items() if not given.out or key == "tokens_per_second"}))
    if given.out:
        given.out.write_text(json.dumps(found, separators=(",", ":")) + "\n")


def _recording(propose: Any, calls: list[Any]) -> Any:
    """``propose``, with each call noted: by row the tokens written and how many there are, the whole text where the row
    is new or moved, and the drafts returned."""
    before: dict[int, list[int]] = {}

    def recorded(sampled: Any, counts: Any, ids: Any, slot_mappings: object = None) -> list[list[int]]:
        rows = []
        for row, tokens in enumerate(sampled):
            text = ids[row, : counts[row]].tolist()
            written = list(map(int, tokens))
            same = before.get(row) == text[: len(text) - len(written)]
            before[row] = text
            rows.append([written, None if same else text])
        drafts = propose(sampled, counts, ids, slot_mappings=slot_mappings)
        calls.append([rows, drafts])
        return drafts

    return recorded


def engine(*arguments: str) -> dict[str, Any]:
    """What a process of its own prints. It gets one thread: bound to cores that others use, threads wait for each other
    a hundred times as long as they compute."""
    command = [sys.executable, "-m", "tests.vllm_engine", *arguments]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    printed = [line for line in done.stdout.splitlines() if line.startswith("{")]  # among vLLM's own lines
    found: dict[str, Any] = json.loads(printed[-1])
    return found


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return engine("plain")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--policy", "fixed:general"),
        ("--streams", "8"),
        ("--policy", "normal-hedge", "--streams", "3", "--blocks", "11"),
        ("--policy", "normal-hedge", "--streams", "4", "--ranks", "2"),
    ],
    ids=" ".join,
)
def test_outputs_are_those_of_plain_vllm_and_rounds_those_of_our_engine(plain, arguments):
    from drafters.pool import load_pool
    from drafters.sampling import SamplingParams
    from multidraft.engine.decoding import generate
    from multidraft.engine.lossless import greedy_differences

    found, pool = engine("ours", *arguments), load_pool("pocket")
    for prompt, *outputs in zip(plain["prompts"], plain["outputs"], found["outputs"], strict=True):
        if outputs[0] != outputs[1]:
            near = [difference for output in outputs for difference in greedy_differences(pool, prompt, output)]
            print(f"outputs part at a near-tie: {near}")
            assert all(difference.rounding for difference in near)
    if arguments != ("--policy", "fixed:general"):
        return
    # Proposers are told of no limit, so ours is further away; the last round is the one that the end cuts.
    params = SamplingParams(max_new_tokens=TOKENS + 2 * LENGTH, draft_length=LENGTH)
    for prompt, output in zip(found["prompts"], found["outputs"], strict=True):
        ours = generate(pool, [*prompt, output[0]], "fixed:general", params)
        rounds = found["rounds"][json.dumps(prompt)][1:]
        played = [[r.drafter, list(r.drafted), r.accepted, list(r.tokens)] for r in ours.rounds]
        assert rounds[:-1] == played[: len(rounds) - 1] and len(rounds) <= len(played)


TEMPERATURES = 2.0, 0.7


@pytest.mark.parametrize("method", [("plain",), ("ours", "--policy", "fixed:general")], ids=" ".join)
@pytest.mark.parametrize("top_k", [0, 3])
def test_sampled_outputs_are_distributed_as_the_target_has_them(method, top_k):
    """At temperatures that have to reach each drafted token of their own request, beside others in one batch. What
    comes of plain vLLM shows that the yardstick is right."""
    from transformers import AutoModelForCausalLM

    from drafters.sampling import SamplingParams
    from tests.distributions import ALPHA, exact_outputs, p_value, p_value_of_tokens

    given = ("--top-k", str(top_k), "--tokens", "4", "--prompts", "1", "--texts", "1200", "--streams", "32")
    found = engine(*method, *given, "--temperature", *map(str, TEMPERATURES))
    model = AutoModelForCausalLM.from_pretrained(ROOT / "drafters" / "pocket" / "target").eval()
    for first, temperature in enumerate(TEMPERATURES):
        asked = SamplingParams(max_new_tokens=4, temperature=temperature, top_k=top_k)
        prompt, outputs = found["prompts"][0], found["outputs"][first :: len(TEMPERATURES)]
        assert p_value_of_tokens(model, prompt, outputs, asked) > ALPHA
        if top_k and temperature > 1:  # few different ones, and more than one likely
            assert p_value(Counter(map(tuple, outputs)), exact_outputs(model, prompt, asked)) > ALPHA
    if method[0] == "ours":
        assert any(accepted for _, accepted in found["drafts"])
        assert any(accepted < drafted for drafted, accepted in found["drafts"])


if __name__ == "__main__":
    main()
