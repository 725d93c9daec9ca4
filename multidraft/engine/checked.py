"""What is recorded of a verification beyond its outcome, so that a round can be shown step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch

from drafters.draft import Draft
from drafters.sampling import choices
from multidraft.engine.verify import Verdict


def checked(
    draft: Draft,
    path: Sequence[int],
    verdict: Verdict,
    logits: torch.Tensor | None,
    emitted: Sequence[int],
    texts: Mapping[int, str],
) -> dict[str, Any]:
    """The fields ``choices``, ``siblings`` and ``texts`` of a :class:`~storage.records.Round`.

    Args:
        path: the nodes of the draft's main path.
        logits: of the target ``(n + 1, V)``, ``None`` where they are unknown; so are its choices then.
        emitted: the tokens of the round.
        texts: of all tokens.
    """
    likeliest = verdict.choices if logits is None or verdict.choices is not None else choices(logits)[0]
    chosen = () if likeliest is None else tuple(likeliest[node + 1] for node in (-1, *path))
    siblings = draft.siblings(path)
    others = {*chosen, *(draft.tokens[node] for node in path), *chain.from_iterable(siblings)} - {*emitted}
    return {"choices": chosen, "siblings": siblings, "texts": {token: texts[token] for token in sorted(others)}}
