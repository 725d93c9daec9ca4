"""Retrieval against its definition, searched without a suffix array; datastores that are not what they should be."""

import json
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.errors import PoolError
from drafters.kinds import rest
from drafters.kinds.rest import DatastoreDrafter
from drafters.retrieval.datastore import END, MAGIC, Datastore, suffix_array, tokenizer_fingerprint, write_datastore
from drafters.sampling import SamplingParams
from tests import tiny
from tests.engine_cases import check_judgements, draft_of

GREEDY = SamplingParams()
TEXTS = st.lists(st.lists(st.integers(0, 2), max_size=25), max_size=4)
CONTEXTS = st.lists(st.integers(0, 2), max_size=25)


@pytest.fixture(params=[3, 512], autouse=True)
def sample(request, monkeypatch):
    monkeypatch.setattr(rest, "SAMPLE", request.param)
    return request.param


def tokens_of(texts):
    return np.array([token for text in texts for token in [*text, END]], dtype=np.uint32)


def store_of(texts):
    tokens = tokens_of(texts)
    return Datastore(tokens, suffix_array(tokens), {})


def followers(texts, text):
    """Shares of what followed ``text``, the end of a text included."""
    places = [(t, end) for t in texts for end in range(len(text), len(t) + 1) if t[end - len(text) : end] == text]
    found = [t[end] if end < len(t) else None for t, end in places]
    return {token: found.count(token) / len(found) for token in found}


def longest_match(texts, context):
    for n in range(min(rest.LONGEST, len(context)), 0, -1):
        if followers(texts, context[-n:]):
            return context[-n:]
    return []


def naive_chain(texts, context, length):
    match, drafted = longest_match(texts, context), []
    while match and len(drafted) < length:
        shares = {t: share for t, share in followers(texts, match + drafted).items() if t is not None}
        if not shares:
            break
        drafted.append(max(sorted(shares), key=shares.get))
    return drafted


@given(texts=TEXTS, depth=st.sampled_from([1, 4, 128]))
def test_a_suffix_array_is_sorted(texts, depth):
    tokens = tokens_of(texts)
    found = suffix_array(tokens, depth)
    assert sorted(found.tolist()) == list(range(len(tokens)))
    here = [tokens[place : place + depth].tolist() for place in found]
    assert here == sorted(here)


def test_a_suffix_array_of_large_ids_and_long_repeats():
    tokens = tokens_of([[150_000, 7, 150_000] * 60, [150_000, 7, 150_000] * 60])
    here = [tokens[place : place + 128].tolist() for place in suffix_array(tokens)]
    assert here == sorted(here)


@given(texts=TEXTS, context=CONTEXTS, length=st.integers(0, 6))
def test_a_chain_is_the_most_frequent_continuation(sample, texts, context, length):
    draft = draft_of(DatastoreDrafter("r", store_of(texts)), context, length)
    assert draft.is_chain and draft.q is None and not draft.sampled
    if sample > 100:
        assert list(draft.tokens) == naive_chain(texts, context, length)
    else:  # counted by sample: at least what is drafted has occurred
        match = longest_match(texts, context)
        assert not draft.tokens or followers(texts, match + list(draft.tokens))


@given(texts=TEXTS, context=CONTEXTS, nodes=st.integers(1, 10))
def test_a_tree_holds_what_followed(sample, texts, context, nodes):
    draft = draft_of(DatastoreDrafter("r", store_of(texts), nodes), context, 4)
    assert len(draft) <= nodes and draft.depth <= 4
    match = longest_match(texts, context)
    paths = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        paths.append([*(paths[parent] if parent >= 0 else []), token])
        assert followers(texts, match + paths[-1])
    assert len({tuple(path) for path in paths}) == len(paths)
    if sample > 100 and match:
        known = [token for token in followers(texts, match) if token is not None]
        assert len(draft.children(-1)) == min(len(known), nodes, rest.WIDTH)


@pytest.mark.parametrize("nodes", [None, 5])
@settings(max_examples=20)
@given(texts=TEXTS, context=st.lists(st.integers(0, 2), min_size=1, max_size=25), data=st.data())
def test_gamma_and_acceptances_are_those_of_real_drafts(nodes, texts, context, data):
    start = data.draw(st.integers(1, len(context)))
    drafter = DatastoreDrafter("r", store_of(texts), nodes)
    drafts = [draft_of(drafter, context[:s], 4) for s in range(start, len(context))]
    check_judgements(drafter, drafts, context, start, 3)


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "past.store"
    write_datastore(path, tokens_of([[1, 2, 3, 4], [2, 3, 5]]), tiny.tokenizer())
    return path


def opened(path, vocabulary=tiny.VOCAB):
    return Datastore.open(path, tokenizer_fingerprint(tiny.tokenizer()), vocabulary)


def test_a_datastore_is_read_as_it_was_written(written):
    store = opened(written)
    assert store.tokens.tolist() == [1, 2, 3, 4, END, 2, 3, 5, END]
    assert store.header["vocabulary"] == 6
    assert draft_of(DatastoreDrafter("r", store), [1, 2]).tokens == (3, 4)
    assert isinstance(store.tokens.base.base, np.memmap) or isinstance(store.tokens.base, np.memmap)


def test_an_empty_datastore_proposes_nothing():
    assert draft_of(DatastoreDrafter("r", store_of([])), [1, 2]).tokens == ()


def flipped(content):
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (None, "does not exist"),
        (lambda content: b"", "is no datastore"),
        (lambda content: b"PK" + content[2:], "is no datastore"),
        (lambda content: content[:9], "cannot be used: it is damaged, "),
        (lambda content: content[:40], "cannot be used: it is damaged, "),
        (lambda content: content[:-4], "cannot be used: it is damaged, "),
        (lambda content: content + b"more", "cannot be used: it is damaged, "),
        (flipped, "cannot be used: it is damaged, "),
        (lambda content: MAGIC + b"\2\0\0\0[]", "cannot be used: it is damaged, "),
        (lambda content: MAGIC + b"\0\0\1\0" + b"[" * 65536, "cannot be used: it is damaged, "),
        (lambda content: MAGIC + b"\xff\xff\xff\xff" + content[12:], "cannot be used: it is damaged, "),
    ],
)
def test_a_file_that_is_no_sound_datastore(written, damage, message):
    if damage is None:
        written.unlink()
    else:
        written.write_bytes(damage(written.read_bytes()))
    with pytest.raises(PoolError, match=f"{written} {message}.*; .*datastore build") as caught:
        opened(written)
    assert "\n" not in str(caught.value)


def test_a_datastore_of_another_tokenizer(written):
    with pytest.raises(PoolError, match=f"{written} was made with another tokenizer"):
        Datastore.open(written, "0" * 16, tiny.VOCAB)
    with pytest.raises(PoolError, match=f"{written} was made with another tokenizer"):
        opened(written, vocabulary=5)


def test_a_checksum_covers_what_is_read(written):
    content = written.read_bytes()
    header = json.loads(content[12 : 12 + int.from_bytes(content[8:12], "little")])
    assert header["checksum"] == zlib.crc32(content[-8 * header["tokens"] :])
