"""Drafters with another tokenizer: their text in the target's tokens, whatever the two make of it."""

from functools import cache
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from drafters import bridge
from drafters.base import Evidence
from drafters.bridge import BridgedDrafter
from drafters.draft import Draft
from drafters.kinds.lm import make_lm_drafters
from drafters.kinds.pld import PromptLookup
from drafters.models.target import Target
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from drafters.tree import accepted_tokens
from tests import tiny
from tests.engine_cases import Scripted, check_greedy, check_judgements, check_window_end, pool_of
from tests.world import PARAMS, check_outputs_follow_the_target

GREEDY = SamplingParams(draft_length=6)
TEXT = (
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich 🥊🙂.\n\nThe quick brown fox jumps over\n"
    "    the lazy dog; it isn't as lazy as 1234 other dogs... 👍🏽 naïve café\n\tÖl, Äpfel und Übermut:\r\n"
    "- eins\n- zwei  \ndef größe(x):\n    return x * 2  # 日本語のテキスト ohne Leerzeichen\n"
)
SPECIAL = ["<|end|>", "<|user|>"]


def trained(model, pre, decoder, trainer, **kw):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre, decoder
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", **kw)


@cache
def tokenizer(kind):
    if kind == "word-level":
        return trained(
            models.WordLevel(unk_token="<unk>"),
            pre_tokenizers.Metaspace(),
            decoders.Metaspace(),
            trainers.WordLevelTrainer(vocab_size=20, special_tokens=["<unk>", "<s>", *SPECIAL]),
            unk_token="<unk>",
        )
    if kind == "metaspace":
        return trained(
            models.BPE(unk_token="<unk>"),
            pre_tokenizers.Metaspace(prepend_scheme="first"),
            decoders.Metaspace(prepend_scheme="first"),
            trainers.BpeTrainer(vocab_size=250, special_tokens=["<unk>", "<s>", *SPECIAL]),
            unk_token="<unk>",
        )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return trained(
        models.BPE(),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
        trainers.BpeTrainer(vocab_size=int(kind), special_tokens=SPECIAL, initial_alphabet=alphabet),
        additional_special_tokens=SPECIAL[1:],
    )


KINDS = ["300", "500", "metaspace", "word-level"]
PAIRS = [(own, target) for own in KINDS for target in KINDS if own != target]


def encode(kind, text):
    return tokenizer(kind).encode(text, add_special_tokens=False)


def decode(kind, ids, **kw):
    return tokenizer(kind).decode(ids, clean_up_tokenization_spaces=False, **kw)


def knowing(kind, text=TEXT):
    """An inner drafter that knows how the text goes on."""

    def draft_of(ids, length):
        read = decode(kind, ids, skip_special_tokens=True)
        rest = text[len(read) :] if text.startswith(read) else ""
        if (whole := encode(kind, text))[: len(ids)] == ids:
            rest_ids = whole[len(ids) :]
        else:  # inside one of its tokens; those with marked spaces cannot go on there
            rest_ids = encode(kind, rest) if kind.isdigit() or rest.startswith(" ") else []
        return Draft.chain(rest_ids[:length])

    return Scripted("knowing", draft_of)


def bridged(inner, own, target, vocab_size=None):
    return BridgedDrafter("b", inner, tokenizer(own), tokenizer(target), vocab_size or len(tokenizer(target)))


def draft_of(drafter, context, length=6):
    return drafter.propose(context, length, GREEDY, torch.Generator())


@pytest.mark.parametrize(("own", "target"), PAIRS)
def test_drafts_say_what_the_inner_drafter_said(own, target):
    """At every position of the text, in the middle of words and characters too."""
    drafter, ids = bridged(knowing(own), own, target), encode(target, TEXT)
    drafted = accepted = silent = 0
    for position in range(1, len(ids)):
        draft = draft_of(drafter, ids[:position])
        assert draft.is_chain and len(draft) <= 6 and draft.q is None
        said = decode(target, [*ids[:position], *draft.tokens]).rstrip("\N{REPLACEMENT CHARACTER}")
        if "word-level" not in (own, target):  # those do not know most of the words
            assert TEXT.startswith(said)
            drafted, silent = drafted + len(draft), silent + (len(draft) == 0)
            accepted += accepted_tokens(draft, ids[position:])
    if own.isdigit() and target != "word-level":
        # What stands last in a draft may be half a word, spelt in other pieces.
        assert accepted > 0.6 * drafted and drafted > 2 * len(ids) and silent < 0.05 * len(ids)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("The quick brown", " fox jumps"),
        ("Zwölf Box", "kämpfer"),
        ("The quick brown fox jumps over", "\n    the"),
        ("The quick brown fox jumps over\n ", "   the lazy"),
        ("größe(x):", "\n    return"),
    ],
)
@pytest.mark.parametrize(
    ("own", "target"), [("300", "500"), ("500", "300"), ("300", "metaspace"), ("500", "metaspace")]
)
def test_spaces_at_the_border(own, target, text, said):
    whole = Scripted("says", lambda ids, length: Draft.chain(encode(own, said)))
    draft = draft_of(bridged(whole, own, target), encode(target, text), 30)
    assert decode(target, [*encode(target, text), *draft.tokens]) == text + said


def test_a_character_that_the_context_breaks_off_is_completed():
    ids = encode("300", "ok 🥊!")
    assert len(ids) == 6  # among them three for the glove
    drafter = bridged(knowing("500", "ok 🥊!"), "500", "300")
    for position in range(1, len(ids)):
        assert list(draft_of(drafter, ids[:position], 20).tokens) == ids[position:]


def test_broken_characters_and_special_tokens_end_a_draft():
    glove = encode("300", "🥊")
    for tokens, text in (
        ([*encode("300", " a"), *glove[:2]], " a"),
        ([*encode("300", " a"), *glove[1:], *encode("300", "b")], " a"),
        ([*encode("300", " a"), 0, *encode("300", "b")], " a"),
        ([0], ""),
        ([], ""),
    ):
        inner = Scripted("says", lambda ids, length, tokens=tokens: Draft.chain(tokens))
        draft = draft_of(bridged(inner, "300", "500"), encode("500", "The quick"))
        assert decode("500", list(draft.tokens)) == text


def test_a_drafts_main_path_is_taken_and_the_vocabulary_kept_to():
    one, two = encode("300", "a")[0], encode("300", "z")[0]
    inner = Scripted("tree", lambda ids, length: Draft((one, two, two), (-1, -1, 0)))
    context = encode("500", "x")
    assert decode("500", draft_of(bridged(inner, "300", "500"), context).tokens) == "az"
    assert draft_of(bridged(inner, "300", "500", vocab_size=1), context).tokens == ()


def test_special_tokens_of_the_context_are_dropped():
    seen = []
    inner = Scripted("sees", lambda ids, length: seen.append(ids) or Draft.empty())
    ids = [1, *encode("500", "Hi\n"), 0, 1, *encode("500", "The fox")]
    draft_of(bridged(inner, "300", "500"), ids)
    assert seen == [encode("300", "Hi\nThe fox")]
    for context in ([0], [0, 1]):  # and nothing is asked where nothing remains
        assert draft_of(bridged(inner, "300", "500"), context).tokens == () and len(seen) == 1


def test_the_inner_text_begins_as_its_tokenizer_wants():
    marked = trained(
        models.BPE(),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
        trainers.BpeTrainer(vocab_size=300, special_tokens=[*SPECIAL, "<s>"]),
        bos_token="<s>",
    )
    beginning = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
    marked.backend_tokenizer.post_processor = beginning
    seen = []
    inner = Scripted("sees", lambda ids, length: seen.append(ids) or Draft.empty())
    drafter = BridgedDrafter("b", inner, marked, tokenizer("500"), 500)
    draft_of(drafter, encode("500", "The fox"))
    assert seen == [[2, *marked.encode("The fox", add_special_tokens=False)]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_growing_text_is_read_as_the_whole(kind, monkeypatch):
    """By single tokens and by jumps, forwards and back."""
    monkeypatch.setattr(bridge, "CHUNK", 8)
    ids = encode(kind, TEXT)
    drafter, read = BridgedDrafter("b", PromptLookup(), tokenizer(kind), tokenizer(kind), 500), []
    drafter._ids, grown = SimpleNamespace(of=read.append), bridge._GrowingIds(tokenizer(kind))
    assert grown.cuttable
    for end in [*range(0, len(ids), 3), 5, *range(5, len(ids) + 1)]:
        known = decode(kind, ids[:end], skip_special_tokens=True).rstrip("\N{REPLACEMENT CHARACTER}")
        drafter._translated(ids[:end])
        assert read[-1] == known
        assert grown.of(known) == encode(kind, known)


def test_a_tokenizer_that_joins_words_reads_the_whole_text_each_time():
    joining = trained(models.BPE(), None, None, trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL))
    ids = bridge._GrowingIds(joining)
    assert not ids.cuttable and ids.of(TEXT[:100]) == joining.encode(TEXT[:100])


CALLS = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 3)), max_size=6)


@pytest.mark.parametrize(("own", "target"), [("500", "300"), ("metaspace", "500")])
@settings(max_examples=15)
@given(calls=CALLS, position=st.integers(1, 60), garbage=st.lists(st.integers(2, 249), max_size=4))
def test_no_call_order_changes_a_draft(own, target, calls, position, garbage):
    def fresh():
        return bridged(PromptLookup(), own, target)

    ids, drafter = [*encode(target, TEXT)[:50], *garbage, *encode(target, TEXT)[:50]], fresh()
    for end, call in calls:
        if call == 0:
            drafter.prepare(ids[:end])
        elif call == 1:
            draft_of(drafter, ids[:end])
        elif call == 2:
            drafter.gamma(Evidence(ids[:end], max(1, end - 3), None, GREEDY))
        else:
            drafter.acceptances(ids[:end], max(1, end - 3), 4)
    assert draft_of(drafter, ids[: position + 50]) == draft_of(fresh(), ids[: position + 50])


@pytest.mark.parametrize("inner", [PromptLookup, lambda: make_lm_drafters({"lm": tiny.llama(3, vocab=300)}, 300)[0]])
def test_gamma_and_acceptances_are_those_of_real_drafts(inner):
    ids = encode("500", "one two one two one three one two one two")
    start, drafter = 4, bridged(inner(), "300", "500")
    drafts = [draft_of(drafter.twin(None), ids[:s]) for s in range(start, len(ids))]
    check_judgements(drafter, drafts, ids, start, 500, length=6)


@pytest.fixture(scope="module")
def pool():
    """A target that writes bytes at random, characters mostly broken, and drafters of other tokenizers."""
    vocab = len(tokenizer("500"))
    model = tiny.llama(1, vocab=vocab)
    copy = tiny.blend(tiny.llama(2, vocab=vocab), model, 0.1)
    drafters = [
        *make_lm_drafters({"near": copy}, vocab),
        BridgedDrafter("lookup", PromptLookup(), tokenizer("300"), tokenizer("500"), vocab),
        BridgedDrafter("same", make_lm_drafters({"i": copy}, vocab)[0], tokenizer("500"), tokenizer("500"), vocab),
        BridgedDrafter(
            "words",
            make_lm_drafters({"i": tiny.llama(4, vocab=250)}, 250)[0],
            tokenizer("metaspace"),
            tokenizer("500"),
            vocab,
        ),
    ]
    return Pool(Target(model), drafters, tokenizer("500"), pool_of(tiny.llama(1)).card)


POLICIES = ["fixed:lookup", "fixed:same", "fixed:words", "round-robin", "draft-all", "ucb:reward=bd", "normal-hedge"]


@pytest.mark.parametrize("policy", POLICIES)
def test_greedy_output_is_that_of_transformers(pool, policy):
    prompts = [encode("500", text) for text in ("The quick brown fox. The quick", "Öl 🙂\nÖl 🙂\nÖl", "x")]
    rounds = check_greedy(pool, prompts, policy, 20, (1, 4))
    assert any(r.accepted for r in rounds) or policy != "fixed:same"


def test_the_end_of_the_context_window(pool):
    prompt = (encode("500", TEXT) * 2)[: tiny.WINDOW - 12]
    for policy in ("fixed:lookup", "fixed:same"):
        check_window_end(pool, policy, 4, prompt)


def test_sampled_outputs_follow_the_target():
    drafter = BridgedDrafter("b", PromptLookup(), tiny.characters("?edcba"), tiny.characters("abcde?"), 5)
    check_outputs_follow_the_target(drafter, PARAMS["both"], 500)
