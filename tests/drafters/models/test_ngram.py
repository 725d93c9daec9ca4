"""The n-gram model against its definition, counted without arrays; files that are not what they should be."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from drafters.errors import PoolError
from drafters.models import ngram
from drafters.models.ngram import NAMES, NGram, count_ngrams

V = 4
TEXTS = st.lists(st.lists(st.integers(0, V - 1), max_size=20), max_size=5)
BEFORE = st.lists(st.integers(0, V - 1), max_size=4)


def probability(texts, before, token, vocab=V):
    """Witten-Bell, by the definition: ``before`` holds two tokens at most."""
    lower = probability(texts, before[1:], token, vocab) if before else 1.0 / vocab
    length = len(before) + 1
    grams = Counter(tuple(text[i : i + length]) for text in texts for i in range(len(text) - length + 1))
    after = {gram[-1]: count for gram, count in grams.items() if gram[:-1] == tuple(before)}
    if not after:
        return lower
    return (after.get(token, 0) + len(after) * lower) / (sum(after.values()) + len(after))


@pytest.fixture(params=[3, 2**20])
def buffer(request, monkeypatch):
    monkeypatch.setattr(ngram, "BUFFER", request.param)


@given(texts=TEXTS, before=BEFORE)
def test_probabilities_are_those_of_the_definition(buffer, texts, before):
    model = count_ngrams(iter(texts), V)
    found = model.log_probabilities(before, range(V))
    assert found.dtype == np.float64 and np.exp(found).sum() == pytest.approx(1.0)
    expected = [math.log(probability(texts, before[-2:], token)) for token in range(V)]
    assert found.tolist() == pytest.approx(expected)
    assert model.log_probabilities(before, [2, 0]).tolist() == pytest.approx([expected[2], expected[0]])
    assert model.log_probabilities(before, []).tolist() == []


def test_ids_of_a_large_vocabulary_do_not_overflow():
    vocab = ngram.LARGEST_VOCABULARY
    texts = [[vocab - 1, vocab - 2, vocab - 1], [vocab - 1, vocab - 1, vocab - 1, 0]]
    model = count_ngrams(texts, vocab)
    for before in ([], [vocab - 1], [vocab - 1, vocab - 2], [vocab - 1, vocab - 1], [5, 0]):
        tokens = [vocab - 1, vocab - 2, 0, 7]
        expected = [math.log(probability(texts, before, token, vocab)) for token in tokens]
        assert model.log_probabilities(before, tokens).tolist() == pytest.approx(expected)


def test_texts_are_read_one_after_the_other(monkeypatch):
    monkeypatch.setattr(ngram, "BUFFER", 8)
    model = count_ngrams(([i % V] * 3 for i in range(40)), V)
    assert model.unigrams.tolist() == [30] * V
    assert [level.keys.tolist() for level in model.levels] == [[0, 5, 10, 15], [0, 21, 42, 63]]
    assert [level.counts.tolist() for level in model.levels] == [[20] * V, [10] * V]


@pytest.mark.parametrize("text", [[0, V], [-1]])
def test_tokens_outside_the_vocabulary(text):
    with pytest.raises(ValueError, match=f"are not all in a vocabulary of {V}"):
        count_ngrams([text], V)


@pytest.mark.parametrize("vocab", [0, 2**21])
def test_vocabularies_that_cannot_be_counted(vocab):
    with pytest.raises(ValueError, match="n-grams are counted over 1 to 2,097,151 tokens, not "):
        count_ngrams([], vocab)


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "ngrams" / "past.safetensors"
    count_ngrams([[0, 1, 2, 3, 0, 1, 1], [2, 2, 3]], V).save(path)
    return path


def test_a_model_is_read_as_it_was_written(written, tmp_path):
    model, again = count_ngrams([[0, 1, 2, 3, 0, 1, 1], [2, 2, 3]], V), NGram.open(written, V)
    for before in ([], [1], [0, 1], [3, 3]):
        assert again.log_probabilities(before, range(V)).tolist() == model.log_probabilities(before, range(V)).tolist()
    count_ngrams([], V).save(tmp_path / "empty.safetensors")
    assert NGram.open(tmp_path / "empty.safetensors", V).log_probabilities([1, 2], [3]) == pytest.approx(-math.log(V))


def changed(name, change):
    def change_one(path):
        arrays = load_file(path)
        arrays[name] = change(arrays[name])
        save_file({key: array for key, array in arrays.items() if array is not None}, path)

    return change_one


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "the n-gram model .*past.safetensors does not exist"),
        (lambda path: path.write_bytes(b""), "cannot read the n-gram model .*past.safetensors"),
        (lambda path: path.write_bytes(path.read_bytes()[:-8]), "cannot read the n-gram model .*past.safetensors"),
        (changed("bigrams.keys", lambda keys: None), "is no n-gram model: it lacks the tensor bigrams.keys"),
        (
            changed("trigrams.counts", lambda counts: counts.astype(np.float32)),
            r"tensor trigrams.counts has the shape \[\d\] and the type float32, but one dimension of int64",
        ),
        (
            changed("unigrams", lambda counts: np.append(counts, 1)),
            r"was made for 5 tokens, but the target has 4 \(tensor unigrams has the shape \[5\], but \[4\]",
        ),
        (changed("bigrams.keys", lambda keys: keys[:-1]), "is damaged: 5 keys and 6 counts of 2-grams"),
        (changed("bigrams.keys", lambda keys: keys[::-1].copy()), "is damaged: its 2-grams are not in order"),
        (changed("trigrams.keys", lambda keys: keys + V**3), "is damaged: its 3-grams are not in order"),
        (changed("trigrams.counts", lambda counts: counts - 1), "is damaged: its 3-grams are not in order"),
        (changed("unigrams", lambda counts: counts - 9), "is damaged: it has negative counts"),
    ],
)
def test_files_that_cannot_be_used(written, damage, message):
    assert set(load_file(written)) == set(NAMES)
    damage(written)
    with pytest.raises(PoolError, match=message) as caught:
        NGram.open(written, V)
    assert "\n" not in str(caught.value)
