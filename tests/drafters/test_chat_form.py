"""What a card says about the chat form and the length of contexts."""

import pytest
from transformers import tokenization_utils_base

import multidraft as md
from drafters.card import Card, find_card, load_card
from drafters.errors import PoolError, PromptError
from drafters.pool import load_pool
from drafters.sampling import SamplingParams
from drafters.text import chat_ids
from tests import tiny

TEMPLATE = """{% for m in messages %}{{ 'a' if m['role'] == 'user' else 'b' }}{{ m['content'] }}{% endfor %}
{%- if add_generation_prompt %}{{ 'h' if thinking else 'i' }}{% endif %}"""


def load(folder, **changes):
    return load_pool(tiny.change_card(folder / "card.yaml", **changes))


def test_a_card_brings_its_own_template_and_what_it_is_given(pool_folder):
    pool = load(pool_folder, chat_template=TEMPLATE, chat_template_kwargs={"thinking": True})
    assert pool.conversational and pool.decode(pool.encode("cd", [("e", "f")])) == "aebfacdh"
    pool = load(pool_folder, chat_template_kwargs={})
    assert pool.decode(pool.encode("cd")) == "acdi"


def test_the_tokenizers_template_is_given_them_too(pool_folder):
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(pool_folder / "target")
    assert load(pool_folder).decode(load(pool_folder).encode("cd")) == "acdi"
    pool = load(pool_folder, chat_template_kwargs={"thinking": True})
    assert pool.decode(pool.encode("cd")) == "acdh"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for m in %}", "chat template of pool 'tiny' cannot be used: "),
        ("{{ raise_exception('no such role') }}", "chat template of pool 'tiny' cannot be used: no such role"),
    ],
)
def test_a_template_that_cannot_be_used_says_so_at_loading(pool_folder, template, message):
    with pytest.raises(PoolError, match=message):
        load(pool_folder, chat_template=template)


@pytest.mark.parametrize("name", ["messages", "add_generation_prompt", "tokenize"])
def test_a_card_cannot_set_what_the_engine_does(name):
    card, _ = load_card(find_card("qwen3-8b"))
    with pytest.raises(ValueError, match=f"chat_template_kwargs cannot set {name}: the engine does"):
        Card.model_validate({**card.model_dump(exclude_unset=True), "chat_template_kwargs": {name: 1}})


def test_vicunas_form_is_that_of_fastchat():
    card, _ = load_card(find_card("vicuna-7b"))
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template, tokenizer.bos_token = card.chat_template, "<s>"
    messages = [
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "How are you?"},
    ]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text == (
        "<s>A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
        "detailed, and polite answers to the user's questions. USER: Hello! ASSISTANT: Hello!<|end|> "
        "USER: How are you? ASSISTANT:"
    )


def test_a_card_may_allow_less_than_the_target_knows(pool_folder):
    pool = load(pool_folder, context_window=20)
    pool.stop_ids = frozenset()
    assert pool.target.window == 20
    out = md.generate(pool, "abcabc", "normal-hedge", SamplingParams(100))
    assert len(out.token_ids) == 14
    assert out.token_ids == tiny.greedy(pool.target.model, pool.encode("abcabc"), 14)
    with pytest.raises(PromptError, match="holds 20 including the answer"):
        md.generate(pool, "abcd" * 5, "ucb", SamplingParams(4))
    assert load(pool_folder, context_window=10_000).target.window == tiny.WINDOW


@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_a_prompt_beyond_the_window_is_refused_and_not_warned_of(monkeypatch, template):
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template, tokenizer.model_max_length = template, 4
    warned = []
    monkeypatch.setattr(tokenization_utils_base.logger, "warning", lambda message, *_: warned.append(message))
    assert len(chat_ids(tokenizer, "abcdefgh")) >= 8 and warned == []
    tokenizer("abcdefgh")
    assert len(warned) == 1, "left to itself the library warns"
