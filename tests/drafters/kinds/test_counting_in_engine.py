"""Drafters that count what followed, as arms of a pool: the output stays the target's, and replays are exact."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from drafters.draft import Draft
from drafters.errors import PoolError
from drafters.kinds.rest import DatastoreDrafter
from drafters.kinds.suffix import SuffixDrafter
from drafters.pool import load_pool
from drafters.retrieval.datastore import END, Datastore, suffix_array, tokenizer_fingerprint
from drafters.sampling import SamplingParams
from multidraft.__main__ import main
from multidraft.engine.decoding import generate
from multidraft.replay.regret import acceptance_table, gamma_table, regret_of
from tests import tiny
from tests.engine_cases import check_greedy, check_replayed_trees, check_window_end, with_drafter
from tests.world import HISTORY, PARAMS, check_outputs_follow_the_target

GREEDY = SamplingParams(40, draft_length=4)
PROMPTS = tiny.texts(4, 11, 3)
DRAFTERS = [
    {"name": "near", "kind": "lm", "path": "near"},
    {"name": "chain", "kind": "suffix"},
    {"name": "tree", "kind": "suffix", "nodes": 7},
    {"name": "past", "kind": "rest", "path": "stores/letters.store"},
    {"name": "past-tree", "kind": "rest", "path": "stores/letters.store", "nodes": 6},
]
POLICIES = ["fixed:chain", "fixed:tree", "fixed:past", "fixed:past-tree", "draft-all", "normal-hedge"]


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    """A pool with a datastore of what its target has written before; some of the answers to ``PROMPTS`` among it."""
    card = tiny.write_pool(tmp_path_factory.mktemp("counting"), drafters=DRAFTERS[:2])
    plain = load_pool(card)
    prompts = [*PROMPTS[:2], *tiny.texts(8, 3, 3)]
    answers = [generate(plain, prompt, "autoregressive", GREEDY) for prompt in prompts]
    (card.parent / "stores").mkdir()
    lines = [json.dumps({"text": plain.decode([*plain.encode(a.prompt), *a.token_ids])}) for a in answers]
    (card.parent / "answers.jsonl").write_text("\n".join(lines) + "\n\n")
    (card.parent / "letters.txt").write_text("abc abd abc\n" * 40)
    return tiny.change_card(card, drafters=DRAFTERS)


@pytest.fixture(scope="module")
def pool(card):
    out = card.parent / "stores/letters.store"
    sources = [str(card.parent / "answers.jsonl"), str(card.parent / "letters.txt")]
    assert main(["datastore", "build", "--pool", str(card), "--out", str(out), *sources]) == 0
    return tiny.load(card)


def test_what_a_card_makes_of_them(pool):
    assert [(d.name, d.kind, getattr(d, "nodes", None)) for d in pool.drafters[1:]] == [
        ("chain", "suffix", None),
        ("tree", "suffix", 7),
        ("past", "rest", None),
        ("past-tree", "rest", 6),
    ]


@pytest.mark.parametrize("policy", [*POLICIES, "round-robin", "ucb:reward=bd", "rate-hedge", "ucb-length"])
def test_greedy_output_is_that_of_transformers(pool, policy):
    check_greedy(pool, PROMPTS, policy, 40)


def test_a_tree_is_cut_where_the_context_window_ends(pool):
    for policy in ("fixed:tree", "fixed:past-tree", "draft-all"):
        check_window_end(pool, policy, 6)
    bush = with_drafter(pool, lambda context, length: Draft(tuple(range(11)), (-1,) * 11))
    check_window_end(bush, "fixed:scripted", 6)


@pytest.mark.parametrize("spec", [*POLICIES, "round-robin", "normal-hedge:game=chunk", "ucb:reward=be"])
def test_replayed_rounds_are_the_live_ones(pool, spec):
    params = SamplingParams(24, draft_length=4)  # the window has room for all nodes
    for prompt in PROMPTS:
        live, table = check_replayed_trees(pool, prompt, spec, params)
        if spec.startswith("fixed:"):
            assert regret_of(live, table).drafter_rounds[spec.removeprefix("fixed:")] == len(live.rounds)


def test_each_of_them_has_drafts_accepted(pool):
    """Otherwise the tests above would prove little; trees accept no less than their chains."""
    accepted = {
        policy: sum(r.accepted for prompt in PROMPTS for r in generate(pool, prompt, policy, GREEDY).rounds)
        for policy in POLICIES[:4]
    }
    assert all(accepted.values())
    table = np.concatenate(
        [acceptance_table(pool, pool.encode(p), generate(pool, p, "fixed:near", GREEDY).token_ids, 4) for p in PROMPTS],
        axis=1,
    )
    assert (table[2] > 0).sum() >= (table[1] > 0).sum() > 0
    assert (table[4] > 0).sum() >= (table[3] > 0).sum() > 0


def test_a_prompt_asked_again_is_drafted_for_as_before(pool):
    keeping = with_drafter(pool, None)
    keeping.drafters = [SuffixDrafter("scripted", past=1000)]
    outputs = [generate(keeping, prompt, "fixed:scripted", GREEDY) for prompt in (PROMPTS[0], PROMPTS[0], PROMPTS[1])]
    assert [r.drafted for r in outputs[0].rounds] == [r.drafted for r in outputs[1].rounds]
    assert len(keeping.drafters[0].known[0].next) > len(outputs[0].token_ids), "to another prompt the answer is known"


def test_a_sampled_run_learns_from_them(pool):
    params = SamplingParams(30, temperature=1.0, top_k=8, draft_length=4)
    out = generate(pool, PROMPTS[0], "normal-hedge", params, seed=3)
    assert len(out.token_ids) == 30
    gamma = gamma_table(pool, pool.encode(PROMPTS[0]), out.token_ids, params)
    assert gamma.shape == (30, 4, 5) and (gamma >= 0).all() and (gamma <= 1).all()
    gamma = gamma[:, 0]
    assert (gamma[:, 2] >= gamma[:, 1] - 1e-6).all() and (gamma[:, 4] >= gamma[:, 3] - 1e-6).all()
    assert (gamma[:, 1:].sum(axis=0) > 0).all()


def counting_drafters():
    tokens = np.array([*HISTORY, END], dtype=np.uint32)
    store = Datastore(tokens, suffix_array(tokens), {})
    return {
        "suffix chain": SuffixDrafter("s"),
        "suffix tree": SuffixDrafter("s", 6),
        "rest chain": DatastoreDrafter("r", store),
        "rest tree": DatastoreDrafter("r", store, 6),
    }


@pytest.mark.parametrize("kind", counting_drafters())
def test_sampled_outputs_follow_the_target(kind):
    check_outputs_follow_the_target(counting_drafters()[kind], PARAMS["both"], 800)


def test_a_datastore_belongs_to_the_pools_hash(pool, card, tmp_path):
    text = tmp_path / "other.txt"
    text.write_text("hij hij")
    path = card.parent / "stores/letters.store"
    before = path.read_bytes()
    assert main(["datastore", "build", "--pool", str(card), "--out", str(path), str(text)]) == 0
    try:
        assert load_pool(card).card_hash != pool.card_hash
    finally:
        path.write_bytes(before)
    assert load_pool(card).card_hash == pool.card_hash


def test_what_is_no_datastore_is_not_overwritten(card, tmp_path, capsys):
    (text := tmp_path / "text.txt").write_text("abc")
    (mine := tmp_path / "mine.py").write_text("print()")
    assert main(["datastore", "build", "--pool", str(card), "--out", str(mine), str(text)]) == 2
    assert "mine.py is no datastore and is not overwritten; name a datastore, or a new file" in capsys.readouterr().err
    assert mine.read_text() == "print()"
    gone = tmp_path / "gone.txt"
    assert main(["datastore", "build", "--pool", str(card), "--out", str(tmp_path / "a.store"), str(gone)]) == 2
    assert f"cannot read {gone}: No such file" in capsys.readouterr().err


def test_the_command_says_what_it_built(pool, card, tmp_path, capsys):
    out = tmp_path / "timed.store"
    (tmp_path / "text.txt").write_text("abcdefg hi " * 300 + "\nabc")
    assert main(["datastore", "build", "--pool", str(card), "--out", str(out), str(tmp_path / "text.txt")]) == 0
    printed = capsys.readouterr().out
    assert "1 text, 3,305 tokens" in printed and "MB/s" in printed
    store = Datastore.open(out, tokenizer_fingerprint(tiny.tokenizer()), tiny.VOCAB)
    assert pool.decode(store.tokens[:-1].tolist()).startswith("abcdefg hi abc")
    assert not list(tmp_path.glob("*.part"))


def test_tokens_are_written_by_frequency(card, tmp_path, capsys):
    """With the one that ends an answer once for each text."""
    out, text = tmp_path / "map.json", tmp_path / "texts.jsonl"
    text.write_text('"aaaa bbb"\n"aab c"')
    command = ["datastore", "tokens", "--pool", str(card), "--out", str(out), str(text)]
    tokenizer = tiny.tokenizer()
    frequent = tokenizer.convert_tokens_to_ids(["a", "b"])
    assert main(command) == 0
    assert json.loads(out.read_text())[:2] == frequent and tokenizer.eos_token_id in json.loads(out.read_text())
    assert main([*command, "--most", "2"]) == 0 and json.loads(out.read_text()) == frequent
    assert re.search(r"map.json: 2 tokens, \d\d\.\d\d% of all 1\d in these texts", capsys.readouterr().out)


@pytest.mark.parametrize("action", ["build", "tokens"])
def test_no_text_is_overwritten(card, tmp_path, capsys, action):
    text = tmp_path / "text.txt"
    text.write_text("abc")
    assert main(["datastore", action, "--pool", str(card), "--out", str(tmp_path / "." / "text.txt"), str(text)]) == 2
    assert (
        "text.txt would be written over, which the command reads" in capsys.readouterr().err
        and text.read_text() == "abc"
    )
    assert main(["datastore", action, "--pool", str(card), "--out", str(tmp_path), str(text)]) == 2
    assert "which is not a regular file" in capsys.readouterr().err


def test_most_is_of_token_maps(card, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("abc")
    end = ["--pool", str(card), "--out", str(tmp_path / "new"), str(tmp_path / "text.txt"), "--most"]
    applies = "--most applies to tokens only"
    for action, most, why in (("build", "3", applies), ("tokens", "0", "--most: 0 tokens are no")):
        assert main(["datastore", action, *end, most]) == 2
        assert why in capsys.readouterr().err and not (tmp_path / "new").exists()


@pytest.mark.parametrize("action", ["build", "tokens"])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.txt", None, "cannot read .*gone.txt"),
        ("empty.txt", b"", "there is no text in .*empty.txt"),
        ("binary.txt", b"\xff\xfe\x00", "binary.txt is not a text in UTF-8"),
        ("broken.jsonl", b'"abc"\n{"text"', "broken.jsonl, line 2: not JSON"),
        ("fields.JSONL", b'{"prompt": "a"}', "fields.JSONL, line 1: expected a string or an object with a text"),
        ("digits.jsonl", b"9" * 5000, "digits.jsonl, line 1: not JSON .a number in it has more than 4,300 digits"),
        ("deep.jsonl", b"[" * 100_000, "deep.jsonl, line 1: not JSON .it is nested too deeply"),
        ("half.jsonl", b'"\\ud83d"', "half.jsonl, line 1: holds half of a character"),
        ("unread.txt", Path("/proc/self/mem"), "cannot read .*unread.txt: Input/output error"),
    ],
)
def test_texts_that_cannot_be_read(card, tmp_path, capsys, action, name, content, message):
    if isinstance(content, Path):
        (tmp_path / name).symlink_to(content)  # root may open any file, and cannot read the beginning of this one
    elif content is not None:
        (tmp_path / name).write_bytes(content)
    arguments = ["--pool", str(card), "--out", str(tmp_path / "o.store"), str(tmp_path / name)]
    assert main(["datastore", action, *arguments]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("multidraft: ") and re.search(message, error)
    assert not list(tmp_path.glob("o.store*"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "the datastore .*letters.store does not exist; build it anew"),
        (
            lambda path: path.write_bytes(b"text"),
            "letters.store is no datastore; name a datastore, or build one into a new file: ",
        ),
        (lambda path: path.write_bytes(path.read_bytes()[:-8]), "letters.store cannot be used: it is damaged"),
    ],
)
def test_a_pool_names_a_datastore_that_cannot_be_used(pool, card, damage, message):
    path = card.parent / "stores/letters.store"
    before = path.read_bytes()
    damage(path)
    try:
        with pytest.raises(PoolError, match=message):
            load_pool(card)
    finally:
        path.write_bytes(before)
