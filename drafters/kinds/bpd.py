"""``bpd``: heads of blockwise parallel decoding (Stern et al. 2018), which draft as Medusa's do."""

from __future__ import annotations

from typing import Literal

from drafters.checkpoints.medusa import BPD_FILE, bpd_sizes, read_bpd
from drafters.checkpoints.model_sizes import config_of, last_hidden_state
from drafters.checkpoints.tensor_files import stored_numbers
from drafters.kinds.base import BuildContext, Footprint, SizeContext, register
from drafters.kinds.medusa import HeadsEntry, MedusaDrafter
from drafters.models.medusa_heads import BPDHeads


@register
class BPDEntry(HeadsEntry):
    """A drafter of kind ``bpd``."""

    title = "BPD heads"
    description = "one head for each of the next tokens, read by the target's output layer"

    kind: Literal["bpd"]

    def footprint(self, context: SizeContext) -> Footprint:
        config, file = config_of(self.source, context.card)
        heads, size, inner = bpd_sizes(config, file)
        numbers = heads * (2 * size * inner + size + inner)
        if self.path is not None:
            numbers = stored_numbers(file.parent, (BPD_FILE,)) or numbers
        return context.head(numbers, [last_hidden_state(context.target)])

    def build(self, context: BuildContext) -> MedusaDrafter:
        return self.build_heads(context, read_bpd, BPDHeads)
