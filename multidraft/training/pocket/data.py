"""The pocket tokenizer, and examples drawn without end from the corpus, tokenised."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from drafters.learning.distil import Encoded
from drafters.text import chat_ids
from multidraft.training.pocket.corpus import FAMILIES, Example
from multidraft.training.pocket.corpus.json_records import JsonRecords
from multidraft.training.pocket.corpus.math_words import work_out
from multidraft.training.pocket.corpus.two_tasks import tasks_of
from multidraft.training.prompts import GENERALIST

PAD, END, USER, ASSISTANT = "<|pad|>", "<|end|>", "<|user|>", "<|assistant|>"

CHAT_TEMPLATE = (
    "{% set before = namespace(text='') %}{% for message in messages %}"
    "{% if message['role'] == 'system' %}{% set before.text = before.text + message['content'] + '\n\n' %}"
    f"{{% elif message['role'] == 'user' %}}{USER}{{{{ before.text + message['content'] }}}}"
    "{% set before.text = '' %}"
    f"{{% else %}}{ASSISTANT}{{{{ message['content'] }}}}{END}{{% endif %}}"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{ASSISTANT}{{% endif %}}"
)
"""What the system says stands before the question, as this project's own server puts it."""

JSON = JsonRecords()
CONTEXT_WINDOW = 1024
FAMILY_WEIGHTS = dict(math=1.3, code=2.0, sql=1.2, translation=1.5, summary=0.5, json=2.4, mixed=0.8)  # noqa: C408
REAL_SHARE = 0.03
TWO_TASKS_SHARE = 0.6
"""Share of a specialist's draws that are prompts with two tasks. Every third of them contains the specialist's own
task, and it learns that part of the answer: it must recognise where its task begins."""


def train_tokenizer(texts: Iterable[str], vocab_size: int, folder: Path) -> PreTrainedTokenizerFast:
    """Learn the vocabulary from ``texts`` and write the tokenizer to ``folder`` in the Hugging Face layout.

    Digits are split one by one so that arithmetic is learnt on place values instead of on arbitrary chunks.
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, END, USER, ASSISTANT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer


class Mixture:
    """Draws examples from weighted families, plus a small share of real text if a GSM8K file is given."""

    def __init__(self, weights: dict[str, float], seed: int, gsm8k: Path | None = None):
        self.names, self.weights = list(weights), list(weights.values())
        self.rng = random.Random(seed)
        self.real = [json.loads(line) for line in gsm8k.open(encoding="utf-8")] if gsm8k else []

    def draw(self) -> Example:
        """One example; a share of ``REAL_SHARE`` comes from GSM8K if it is loaded."""
        if self.real and self.rng.random() < REAL_SHARE:
            row = self.rng.choice(self.real)
            return Example("gsm8k", row["question"], row["answer"].replace("<<", "(").replace(">>", ")"))
        name = self.rng.choices(self.names, self.weights)[0]
        return FAMILIES[name].example(self.rng, "train")


def encode_example(tokenizer: PreTrainedTokenizerFast, example: Example) -> Encoded:
    """Ids of a prompt and its answer, closed by the end token."""
    prompt = chat_ids(tokenizer, example.prompt)
    answer = tokenizer.backend_tokenizer.encode(example.completion, add_special_tokens=False).ids
    return Encoded([*prompt, *answer, tokenizer.convert_tokens_to_ids(END)], len(prompt))


def encode_part(tokenizer: PreTrainedTokenizerFast, example: Example, family: str) -> Encoded:
    """Of an example with two tasks the answer of ``family``, with all that stands before it as the prompt."""
    prompt = chat_ids(tokenizer, example.prompt)
    answer = tokenizer.backend_tokenizer.encode(example.completion, add_special_tokens=False)
    first = example.check["parts"][0]
    second_begins = next(i for i, (begin, _) in enumerate(answer.offsets) if begin > len(first["completion"]))
    if first["family"] == family:
        return Encoded([*prompt, *answer.ids[:second_begins]], len(prompt))
    ids = [*prompt, *answer.ids, tokenizer.convert_tokens_to_ids(END)]
    return Encoded(ids, len(prompt) + second_begins)


def echo(tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> Encoded:
    """A prompt of random tokens whose answer repeats them: nothing but copying helps here.

    The tasks need names and numbers copied out of the prompt, yet teach copying slowly, since most of their
    tokens can be guessed from the format. Random tokens cannot.
    """
    user, assistant, end = tokenizer.convert_tokens_to_ids([USER, ASSISTANT, END])
    specials = len(tokenizer.all_special_ids)
    ids = [rng.randrange(specials, len(tokenizer)) for _ in range(rng.randint(8, 80))]
    return Encoded([user, *ids, assistant, *ids, end], len(ids) + 2)


def sums(rng: random.Random) -> Example:
    """A bare operation of the word problems, worked out: a page of sums holds more of them than a page of stories."""
    while True:
        op = rng.choice("+-**/")
        left, right = rng.randint(2, 9) if op == "*" else rng.randint(2, 700), rng.randint(2, 99 if op == "*" else 300)
        if op == "/":
            right = rng.randint(2, 9)
            left = right * rng.randint(2, 99)
        if chain := work_out(left, op, right):
            return Example("math", f"Work out {left} {op} {right}.", chain[0])


def quoting(rng: random.Random) -> Example:
    """Names and words of the tasks, to be put between quotes (``quote``), or the other way round (``unquote``).

    A word after a space and the same word after a quote or a bracket are different tokens: which belong
    together has to be learned for every name, and here are ten to a line.
    """
    values: list[str] = []
    while len(values) < 10:
        example = JSON.lookup(rng) if rng.random() < 0.7 else FAMILIES["code"].example(rng, "train")
        found = json.loads(example.completion).values() if example.family == "json" else [example.check["name"]]
        values += [value for value in found if isinstance(value, str) and "," not in value]
    plain, quoted = ", ".join(values), json.dumps(values)
    if rng.random() < 0.5:
        return Example("quote", f"Quote these: {plain}", quoted)
    return Example("unquote", f"Unquote these: {quoted}", plain)


DRILLS = {sums: 0.15, JSON.lookup: 0.2, quoting: 0.06}
"""Exercises beside the corpus, with their shares of the examples. (Sums are short: a twentieth of the tokens.)"""


def drilled(tokenizer: PreTrainedTokenizerFast, mixture: Mixture, echo_share: float) -> Iterator[Encoded]:
    """Endless examples of the corpus with drills between them; a share of ``echo_share`` only repeats random tokens."""
    drills: list[Any] = [None, echo, *DRILLS]
    shares = [echo_share, *DRILLS.values()]
    while True:
        drill = mixture.rng.choices(drills, [1.0 - sum(shares), *shares])[0]
        if drill is echo:
            yield echo(tokenizer, mixture.rng)
        else:
            yield encode_example(tokenizer, drill(mixture.rng) if drill else mixture.draw())


def reference_texts(tokenizer: PreTrainedTokenizerFast, family: str, seed: int) -> Iterator[Encoded]:
    """Endless reference answers of the corpus: for the generalist of all families, for a specialist of its own,
    including its parts of answers to two tasks."""
    general = family == GENERALIST
    mixture = Mixture(FAMILY_WEIGHTS if general else {family: 1.0}, seed)
    while True:
        if general or mixture.rng.random() > TWO_TASKS_SHARE:
            yield encode_example(tokenizer, mixture.draw())
            continue
        two = FAMILIES["mixed"].example(mixture.rng, "train")
        if family in tasks_of(two):
            yield encode_part(tokenizer, two, family)
