"""Block drafters: what the library's own generators would draft, whatever was asked before."""

import math
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModel, AutoModelForCausalLM
from transformers.cache_utils import MtpCache
from transformers.generation.candidate_generator import DFlashTokenCandidateGenerator, MTPCandidateGenerator
from transformers.modeling_layers import MtpModel

from drafters.base import Evidence
from drafters.kinds.dflash import DFlashDrafter
from drafters.kinds.mtp import MTPDrafter
from drafters.models.runtimes import HubDecoder
from drafters.models.target import Target
from drafters.pool import Pool
from drafters.sampling import SamplingParams, probabilities
from multidraft.engine.decoding import generate
from tests import tiny
from tests.distributions import ALPHA, exact_outputs, p_value
from tests.engine_cases import check_greedy, check_judgements, check_window_end, played_and_replayed, pool_of

GREEDY = SamplingParams(draft_length=4)
BLOCK, MASK = 5, tiny.VOCAB - 1
MOE = {
    "vocab_size": tiny.VOCAB,
    "hidden_size": 24,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "max_position_embeddings": tiny.WINDOW,
    "bos_token_id": None,
    "eos_token_id": tiny.END,
    "pad_token_id": None,
}
MOE_KINDS = {
    "glm4_moe": {"head_dim": 8},
    "deepseek_v3": {
        "num_key_value_heads": 4,
        "q_lora_rank": 8,
        "kv_lora_rank": 8,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 4,
        "v_head_dim": 8,
    },
    "mellum": {
        "head_dim": 8,
        "num_experts": 4,
        "sliding_window": 6,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
}
"""Plain attention; latent attention; a sliding window, in the one layer for multi-token prediction too."""


def target_of(kind, layers=2):
    """A target whose configuration names ``layers`` layers for multi-token prediction."""
    if kind == "llama":
        return tiny.llama(1, layers=3, num_mtp_layers=layers)
    config = CONFIG_MAPPING[kind](**{**MOE, **MOE_KINDS[kind]}, num_mtp_layers=layers)
    return tiny.spread(AutoModelForCausalLM.from_config(config), 1)


def drawn(module, seed):
    """Peaked random weights, as ``tiny.spread`` makes them, but only those of ``module``."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 2.0 / math.sqrt(parameter.shape[-1]), generator=generator)
    return module


def flash_model(seed=2, hidden=24, **settings):
    values = {
        "hidden_size": hidden,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "sliding_window": 6,
        "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": tiny.WINDOW,
        "block_size": BLOCK,
        "mask_token_id": MASK,
        "target_layer_ids": [0, 2],
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        **settings,
    }
    return drawn(AutoModel.from_config(CONFIG_MAPPING["muse_glimmer_assistant"](**values)), seed).eval()


def mtp_model(target, seed=3):
    model = MtpModel(target, target.config.num_mtp_layers)
    drawn(model.layers, seed)
    return model


def flash(target, source):
    return DFlashDrafter("flash", flash_model(), target, source)


def mtp(target, source):
    return MTPDrafter("mtp", mtp_model(target), target, source)


def states_of(model, ids):
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids[:-1]]), output_hidden_states=True, use_cache=False)


def by_hand(drafter, model, ids, length):
    """What the layers draft, all read anew for each token: the last one goes on from its own states."""
    layers, config = drafter.model.layers, model.config
    states, tokens, first, drafted = states_of(model, ids).hidden_states[-1][0], ids[1:], 1, []
    window = config.sliding_window if "sliding_attention" in (getattr(config, "layer_types", None) or ()) else 10**6
    for step in range(length):
        layer = layers[min(step, len(layers) - 1)]
        if step >= len(layers):
            states = torch.cat([states, made[-1:]])  # noqa: F821 (of the step before)
        elif step:
            states, tokens, first = made, tokens[1:], first + 1  # noqa: F821
        tokens = [*tokens, *drafted[-1:]]
        with torch.inference_mode():
            positions = torch.arange(first, first + len(tokens))[None]
            embedded = model.get_input_embeddings()(torch.tensor([tokens]))
            read = layer.eh_proj(torch.cat([layer.enorm(embedded), layer.hnorm(states[None])], dim=-1))
            ahead = torch.arange(len(tokens)) - torch.arange(len(tokens))[:, None]
            bias = torch.zeros(ahead.shape).masked_fill_((ahead > 0) | (ahead <= -window), -torch.inf)
            rope = {"layer_type": "sliding_attention"} if drafter.model.has_per_layer_rope else {}
            turned = drafter.model.rotary_emb(embedded, position_ids=positions, **rope)
            given = {"attention_mask": bias[None, None], "position_ids": positions, "position_embeddings": turned}
            made = layer.post_norm(layer.mtp_block(read, **given))[0]
            drafted.append(int(model.get_output_embeddings()(made[-1]).argmax()))
    return tuple(drafted)


def by_the_library(drafter, model, ids):
    """What the library's generator drafts when ``ids`` without the last token was the prompt."""
    arguments = {
        "input_ids": torch.tensor([ids]),
        "model_kwargs": {"position_ids": torch.arange(len(ids))[None], "attention_mask": None},
        "model_outputs": states_of(model, ids),
        "is_first_iteration": False,
        "n_last_matches": 0,
    }
    settings = SimpleNamespace(max_length=1000, do_sample=False)
    if isinstance(drafter, DFlashDrafter):
        own = drafter.model, model.get_input_embeddings(), model.get_output_embeddings()
        generator = DFlashTokenCandidateGenerator(*own, settings)
    else:
        generator = object.__new__(MTPCandidateGenerator)  # its __init__ would load a checkpoint
        generator.num_mtp_layers, generator.device = len(drafter.model.layers), drafter.model.device
        generator.mtp_model, generator.mtp_cache = drafter.model, MtpCache(config=model.config.get_mtp_config())
        generator.do_sample, generator.logits_processor, generator.is_main_model_prefill = False, None, True
    with torch.inference_mode():
        candidates, _ = generator.get_candidates(**arguments)
    return tuple(candidates[0, len(ids) :].tolist())


def expected(drafter, model, ids, length):
    """The library's tokens, and of layers that are applied again those of a forward written here."""
    theirs = by_the_library(drafter, model, ids)
    if isinstance(drafter, DFlashDrafter):
        return theirs[:length]
    ours = by_hand(drafter, model, ids, max(length, len(theirs)))
    assert ours[: len(theirs)] == theirs
    return ours[:length]


def draft_of(drafter, context, length=4):
    return drafter.propose(context, length, GREEDY, torch.Generator())


KINDS = {"flash": flash, "mtp": mtp}


@pytest.mark.parametrize(
    ("kind", "target", "layers"),
    [
        ("flash", "llama", 1),
        ("flash", "glm4_moe", 1),
        ("mtp", "llama", 1),
        ("mtp", "llama", 3),
        ("mtp", "glm4_moe", 2),
        ("mtp", "deepseek_v3", 2),
        ("mtp", "mellum", 1),
    ],
)
def test_drafts_are_the_librarys_at_every_position(kind, target, layers):
    """Going on, going back and turning aside, so that all that is cached has to be right; of layers for multi-token
    prediction the library's generator drafts one token each, and more are drafted by the last one."""
    model = target_of(target, layers)
    drafter = KINDS[kind](model, Target(model))
    size = BLOCK - 1 if kind == "flash" else 7
    one, two = tiny.prompts(2, seed=7, shortest=18)
    drafter.prepare(one[:4])
    found = set()
    for ids in [*(one[:n] for n in range(2, len(one) + 1)), two, one[:9], one[:9] + two[9:], one[:9] + two[9:], one]:
        draft = draft_of(drafter, ids, 7)
        assert draft.is_chain and draft.q is None and len(draft) == size
        assert draft.tokens == expected(drafter, model, ids, 7)
        assert draft_of(drafter, ids, 1).tokens == draft.tokens[:1]
        found.add(draft.tokens)
    assert len(found) > 4


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_that_were_accepted_stay_in_the_cache(kind):
    """The context goes on as drafted, in part or in whole."""
    model = target_of("llama", 3)
    drafter, ids = KINDS[kind](model, Target(model)), tiny.prompts(1, seed=8, shortest=8)[0]
    for accepted in (3, 0, 1, 2, 3, 1):
        draft = draft_of(drafter, ids)
        assert draft.tokens == expected(drafter, model, ids, 4)
        ids = [*ids, *draft.tokens[:accepted], 5]


@pytest.mark.parametrize("kind", KINDS)
def test_gamma_and_acceptances_are_those_of_real_drafts(kind):
    model = target_of("llama")
    drafter, ids = KINDS[kind](model, Target(model)), tiny.prompts(1, seed=9, shortest=16)[0]
    ids += draft_of(drafter, ids).tokens  # one draft at least is right
    fresh = KINDS[kind](model, Target(model))
    drafts = [draft_of(fresh, ids[:s]) for s in range(1, len(ids))]
    assert drafts[0].tokens == ()  # a context of one token
    assert any(draft.tokens[:1] == (token,) for draft, token in zip(drafts, ids[1:], strict=True))
    check_judgements(drafter, drafts, ids, 1, tiny.VOCAB)


@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_text_is_read_by_the_target_once(kind, monkeypatch):
    model = target_of("llama")
    target = Target(model)
    drafter, ids = KINDS[kind](model, target), tiny.prompts(1, seed=9, shortest=16)[0]
    reads = []
    read = target._features.read
    monkeypatch.setattr(target._features, "read", lambda *told: reads.append(told) or read(*told))
    drafter.gamma(Evidence(ids, 3, None, GREEDY))
    drafter.acceptances(ids, 3, 4)
    assert len(reads) == 1


def test_a_network_of_another_precision():
    model = target_of("llama")
    single, half = flash(model, Target(model)), flash_model().bfloat16()
    drafter = DFlashDrafter("half", half, model, Target(model))
    drafts = [(draft_of(single, ids), draft_of(drafter, ids)) for ids in tiny.prompts(12, seed=2, shortest=4)]
    assert sum(one.tokens[0] == other.tokens[0] for one, other in drafts) > 8


def test_networks_that_do_not_fit():
    model = target_of("llama")
    for network, message in (
        (tiny.llama(2), "LlamaForCausalLM is no DFlash drafter: its configuration lacks block_size"),
        (flash_model(hidden=16), "the drafter's hidden size is 16, the target's 24"),
        (flash_model(mask_token_id=99), "the target has no embedding of the drafter's mask token 99"),
        (flash_model(target_layer_ids=[0, 9]), "the target has hidden states 0 to 3, not 10"),
    ):
        with pytest.raises(ValueError, match=message):
            DFlashDrafter("d", network, model, Target(model))


def test_an_embedding_that_ends_in_a_norm_is_read_without_it():
    """As the library does; the target reads it with the norm."""

    class Normed(torch.nn.Embedding):
        def __init__(self, count, size):
            super().__init__(count, size)
            self.embed_norm = torch.nn.LayerNorm(size)

        def forward(self, ids):
            return self.embed_norm(super().forward(ids))

    model = target_of("llama")
    normed = drawn(Normed(tiny.VOCAB, 24), 4)
    model.set_input_embeddings(normed)
    drafter = flash(model, Target(model, HubDecoder(model)))
    for ids in tiny.prompts(4, seed=3, shortest=4):
        assert draft_of(drafter, ids).tokens == by_the_library(drafter, model, ids)


@pytest.fixture(scope="module")
def pools():
    made = {}
    for kind in ("llama", "glm4_moe"):
        model = target_of(kind)
        base = pool_of(model, "onnx" if kind == "llama" else "hub")
        own = [flash(model, base.target), mtp(model, base.target)]
        made[kind] = Pool(base.target, [*base.drafters, *own], base.tokenizer, base.card)
    return made


POLICIES = ["fixed:flash", "fixed:mtp", "round-robin", "draft-all", "ucb:reward=bd", "normal-hedge", "rate-hedge"]


@pytest.mark.parametrize("kind", ["llama", "glm4_moe"])
@pytest.mark.parametrize("policy", POLICIES)
def test_greedy_output_is_that_of_transformers(pools, kind, policy):
    rounds = check_greedy(pools[kind], [*tiny.prompts(2, seed=1), [5]], policy, 16, (1, 4))
    assert any(r.accepted for r in rounds) or not policy.startswith("fixed")


@pytest.mark.parametrize("policy", ["fixed:flash", "fixed:mtp"])
def test_the_end_of_the_context_window(pools, policy):
    check_window_end(pools["llama"], policy, 6)


@pytest.mark.parametrize("policy", ["fixed:flash", "fixed:mtp"])
def test_replayed_rounds_are_the_live_ones(pools, policy):
    pool = pools["llama"]
    for prompt in tiny.prompts(3, seed=6):
        live, again, _ = played_and_replayed(pool, prompt, policy, SamplingParams(24, draft_length=4))
        assert again.emitted == [r.emitted for r in live.rounds]


@pytest.mark.parametrize(("policy", "name"), [("fixed:flash", "flash"), ("fixed:mtp", "mtp"), ("normal-hedge", "mtp")])
def test_sampled_outputs_follow_the_target(pools, policy, name):
    pool = pools["llama"]
    params = SamplingParams(3, temperature=1.5, top_k=6, draft_length=2)
    drafter = next(drafter for drafter in pool.drafters if drafter.name == name)

    def chances(ids):
        return probabilities(tiny.logits_of(pool.target.model, ids)[-1], params).double().tolist()

    # A prompt after which the target often says what is drafted.
    candidates = tiny.prompts(40, seed=4, shortest=3, longest=8)
    prompt = max(candidates, key=lambda ids: chances(ids)[draft_of(drafter, ids).tokens[0]])
    exact = exact_outputs(pool.target.model, prompt, params)
    runs = [generate(pool, prompt, policy, params, seed) for seed in range(100 if policy == "normal-hedge" else 200)]
    assert sum(r.accepted for run in runs for r in run.rounds) > len(runs) / 5
    assert p_value(Counter(tuple(run.token_ids) for run in runs), exact) > ALPHA
