"""New Llama models to train."""

from __future__ import annotations

from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase


def make_llama(
    tokenizer: PreTrainedTokenizerBase, max_position_embeddings: int = 1024, **shape: int
) -> LlamaForCausalLM:
    """A Llama with tied embeddings and random weights, with the vocabulary of ``tokenizer``."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        tie_word_embeddings=True,
        initializer_range=0.02,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        max_position_embeddings=max_position_embeddings,
        **shape,
    )
    return LlamaForCausalLM(config)
