"""Batches: what is predicted, what is padding, what belongs together."""

import json
import random

from drafters.learning.distil import collate
from drafters.pool import load_pool
from multidraft.training.data import bucket_batches
from multidraft.training.pocket import data
from multidraft.training.pocket.corpus import FAMILIES, Example
from multidraft.training.pocket.corpus.json_records import JsonRecords
from multidraft.training.pocket.data import (
    CHAT_TEMPLATE,
    JSON,
    Mixture,
    echo,
    encode_example,
    encode_part,
    quoting,
    sums,
)


def some(tokenizer, count=40, seed=0):
    mixture = Mixture({"math": 1.0, "sql": 1.0}, seed)
    return [encode_example(tokenizer, mixture.draw()) for _ in range(count)]


def test_a_prompt_is_encoded_as_the_chat_template_says(tokenizer):
    prompt = FAMILIES["math"].example(random.Random(0), "train").prompt
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, return_dict=False
    )
    assert encode_example(tokenizer, Example("math", prompt, "")).ids == [*chat, tokenizer.eos_token_id]


def test_what_the_system_says_stands_before_the_question(tokenizer):
    def ids(*messages):
        said = [{"role": role, "content": text} for role, text in messages]
        return tokenizer.apply_chat_template(said, add_generation_prompt=True, return_dict=False)

    assert ids(("system", "Add."), ("user", "2 and 3")) == ids(("user", "Add.\n\n2 and 3"))
    assert ids(("system", "Add."), ("user", "2"), ("assistant", "5"), ("user", "3")) == ids(
        ("user", "Add.\n\n2"), ("assistant", "5"), ("user", "3")
    )


def test_the_bundled_target_has_this_template():
    assert load_pool("pocket").tokenizer.chat_template == CHAT_TEMPLATE


def test_exactly_the_answer_is_predicted(tokenizer):
    sequences = some(tokenizer, 5)
    batch = collate(sequences, tokenizer.pad_token_id)
    for row, sequence in enumerate(sequences):
        positions = batch.predicts_answer[row].nonzero().flatten()
        assert batch.ids[row, positions + 1].tolist() == sequence.ids[sequence.prompt_length :]
    assert sequence.ids[-1] == tokenizer.eos_token_id


def test_of_two_tasks_each_part_can_be_predicted_after_what_stands_before_it(tokenizer):
    rng = random.Random(4)
    for _ in range(20):
        example = FAMILIES["mixed"].example(rng, "train")
        whole = encode_example(tokenizer, example)
        first, second = (encode_part(tokenizer, example, part["family"]) for part in example.check["parts"])
        assert first.ids == whole.ids[: second.prompt_length] and second.ids == whole.ids
        assert first.prompt_length == whole.prompt_length
        for encoded, part in zip((first, second), example.check["parts"], strict=True):
            text = tokenizer.decode(encoded.ids[encoded.prompt_length :], skip_special_tokens=True)
            assert text.strip() == part["completion"].strip()


def test_batches_hold_similar_lengths_within_their_size(tokenizer):
    mixture = Mixture({"math": 1.0, "sql": 1.0}, seed=0)
    source = iter(lambda: encode_example(tokenizer, mixture.draw()), None)
    batches = bucket_batches(source, 1500, tokenizer.pad_token_id, random.Random(0))
    sizes, padding = [], []
    for _ in range(20):
        batch = next(batches)
        sizes.append(batch.ids.numel())
        padding.append((batch.ids == tokenizer.pad_token_id).float().mean().item())
    assert max(sizes) <= 1500
    assert sum(padding) / len(padding) < 0.1


def test_an_echo_repeats_its_prompt(tokenizer):
    example = echo(tokenizer, random.Random(0))
    prompt = example.ids[1 : example.prompt_length - 1]
    assert example.ids[example.prompt_length : -1] == prompt
    assert not set(prompt) & set(tokenizer.all_special_ids)


def test_a_mixture_keeps_its_weights_and_its_seed():
    draws = [Mixture({"math": 3.0, "json": 1.0}, seed=5) for _ in range(2)]
    first, second = ([m.draw() for _ in range(200)] for m in draws)
    assert first == second
    assert 0.65 < sum(e.family == "math" for e in first) / 200 < 0.85


def test_real_text_is_a_spice(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "REAL_SHARE", 0.2)
    path = tmp_path / "gsm8k.jsonl"
    path.write_text('{"question": "How many?", "answer": "2 + 3 = <<2+3=5>>5\\n#### 5"}\n')
    mixture = Mixture({"math": 1.0}, seed=0, gsm8k=path)
    real = [e for e in (mixture.draw() for _ in range(200)) if e.family == "gsm8k"]
    assert 20 <= len(real) <= 60
    assert real[0].completion == "2 + 3 = (2+3=5)5\n#### 5"
    assert {Mixture({"math": 1.0}, seed=0).draw().family for _ in range(50)} == {"math"}


def test_a_lookup_asks_for_facts_that_the_text_tells():
    rng, family = random.Random(2), JsonRecords()
    for _ in range(200):
        example = family.lookup(rng)
        answer = json.loads(example.completion)
        assert 1 <= len(answer) <= 2 and family.is_correct(example, example.completion)
        for key, value in answer.items():
            assert key in example.prompt
            if isinstance(value, str):
                assert value in example.prompt


def test_quotes_hold_ten_words_or_more_in_order(tokenizer):
    for seed in range(20):
        encoded = encode_example(tokenizer, quoting(random.Random(seed)))
        prompt = tokenizer.decode(encoded.ids[: encoded.prompt_length], skip_special_tokens=True)
        answer = tokenizer.decode(encoded.ids[encoded.prompt_length :], skip_special_tokens=True)
        command, given = prompt.strip().split(" these: ")
        plain, quoted = (given, answer) if command == "Quote" else (answer, given)
        assert json.loads(quoted) == plain.strip().split(", ")
        assert len(json.loads(quoted)) >= 10


def test_drills_are_short(tokenizer):
    rng = random.Random(1)
    assert max(len(echo(tokenizer, rng).ids) for _ in range(50)) < 1024
    for drill in (sums, JSON.lookup, quoting):
        assert max(len(encode_example(tokenizer, drill(rng)).ids) for _ in range(50)) < 1024
