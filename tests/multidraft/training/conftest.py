"""The pocket tokenizer, which the training code is made for."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast


@pytest.fixture(scope="package")
def tokenizer() -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(Path(__file__).parents[3] / "drafters" / "pocket" / "target")
