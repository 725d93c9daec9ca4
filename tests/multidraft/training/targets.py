"""A target of a few kilobytes with a chat form, and prompts of two tasks for it, in files."""

from __future__ import annotations

import json
from pathlib import Path

from tests import tiny

CHAT = "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %} {% endif %}"


def chat_tokenizer():
    """Its end token is also what pads: as in many a chat model of the Hub."""
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = CHAT
    tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def write_target(folder: Path, layers: int = 2) -> Path:
    """A Llama whose words follow from the last few, so that a drafter can learn them in seconds."""
    tiny.spread(tiny.llama(1, layers=layers), 1, gain=1.0).save_pretrained(folder)
    chat_tokenizer().save_pretrained(folder)
    return folder


def write_start(folder: Path, vocab: int = tiny.VOCAB) -> Path:
    """A drafter that knows nothing yet, with its tokenizer."""
    tiny.spread(tiny.llama(2, layers=1, hidden=32, vocab=vocab), 2, sharpness=1.0, gain=1.0).save_pretrained(folder)
    return folder


def write_prompts(folder: Path, count: int = 16) -> list[str]:
    """``count`` prompts of each of two tasks, ``letters`` (JSON lines) and ``words`` (plain text), for ``--data``."""
    texts = tiny.texts(2 * count, seed=1, shortest=6, longest=10)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"question": f"abc{text}"}) for text in texts[:count]]
    (folder / "gsm.jsonl").write_text("\n".join(rows))
    (folder / "words.txt").write_text("\n".join(f"ihg{text}" for text in texts[count:]))
    return [f"letters={folder / 'gsm.jsonl'}", str(folder / "words.txt")]
