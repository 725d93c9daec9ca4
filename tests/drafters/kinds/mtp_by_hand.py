"""A forward of layers for multi-token prediction without a cache: what drafts of kind ``mtp`` have to be."""

import torch


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
