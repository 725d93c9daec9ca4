"""Start a small Llama with a copying circuit in place.

Every task of the corpus copies names and numbers out of the prompt. Random weights take thousands of steps to grow
the circuit for that, the *induction head* (Olsson et al. 2022): one head that tells each position which token
precedes it, and one in the next layer that looks for the earlier position preceded by the present token and
repeats what stands there. Both can be written down; training then refines them instead of waiting for them.
"""

from __future__ import annotations

import math

import torch
from transformers import LlamaForCausalLM

EMBEDDING_STD = 0.06
CONSTANT = 6.0
"""Size of the constant coordinate of all embeddings, in standard deviations of the others."""
SHARPNESS = 5.0
"""How far the score of the previous position stands above those of its neighbours."""
FAST_PAIRS = 8
"""Rotary pairs that turn fast enough to tell neighbours apart."""
SLOW_FROM = 20
"""First rotary pair that turns too slowly to disturb a comparison of contents over a few hundred positions."""
MATCH_SCORE = 10.0


@torch.no_grad()
def plant_copying(model: LlamaForCausalLM) -> None:
    """Overwrite the embeddings, head 0 of layer 0 and head 0 of layer 1 with an induction circuit.

    All embeddings share one constant coordinate. Tied to the output head it shifts all logits alike, so it
    costs nothing; queries and keys made of it alone score by distance only, which makes a head that always
    looks one position back.
    """
    generator = torch.Generator().manual_seed(0)
    config = model.config
    width, size = config.hidden_size, config.hidden_size // config.num_attention_heads
    half = size // 2
    embedding = model.model.embed_tokens.weight
    embedding.copy_(torch.randn(embedding.shape, generator=generator) * EMBEDDING_STD)
    embedding[:, 0] = CONSTANT * EMBEDDING_STD
    rms = EMBEDDING_STD * math.sqrt((width - 1 + CONSTANT**2) / width)
    constant = CONSTANT * EMBEDDING_STD / rms

    # Orthonormal directions, none along the constant: `read` is copied by the first head into `note`.
    basis = torch.zeros(width, width - 1)
    basis[1:] = torch.linalg.qr(torch.randn(width - 1, width - 1, generator=generator))[0]
    read, note = basis[:, :size], basis[:, size : 2 * size]

    frequencies = config.rope_parameters["rope_theta"] ** (-torch.arange(half) / half)
    fast = frequencies[:FAST_PAIRS]
    amplitude = math.sqrt(SHARPNESS * math.sqrt(size) / float((1 - fast.cos()).sum())) / constant
    first = model.model.layers[0].self_attn
    first.q_proj.weight[:size] = 0
    first.k_proj.weight[:size] = 0
    first.q_proj.weight[:FAST_PAIRS, 0] = amplitude * fast.cos()
    first.q_proj.weight[half : half + FAST_PAIRS, 0] = -amplitude * fast.sin()
    first.k_proj.weight[:FAST_PAIRS, 0] = amplitude
    first.v_proj.weight[:size] = read.T
    # The note about the previous token is made as large as the embedding it is added to.
    first.o_proj.weight[:, :size] = note * rms * math.sqrt(width / size)

    slow = torch.tensor([*range(SLOW_FROM, half), *range(half + SLOW_FROM, size)])
    gain = math.sqrt(MATCH_SCORE * math.sqrt(size) / len(slow))
    second = model.model.layers[1].self_attn
    second.q_proj.weight[:size] = 0
    second.k_proj.weight[:size] = 0
    second.q_proj.weight[slow] = gain * read.T[: len(slow)]
    second.k_proj.weight[slow] = gain * note.T[: len(slow)]
    second.v_proj.weight[:size] = read.T
    second.o_proj.weight[:, :size] = read * rms * 12
