"""``quantized``: the target itself with its weights rounded to 8 bits, which needs no other model (as ML-SpecQD does
with 4 bits: Georganas et al. 2025).

ONNX Runtime keeps an int8 copy of the target's parameters (:mod:`drafters.models.int8`). The drafter agrees with the
target on nearly every token of any text, and a step of it reads a quarter of the bytes: worth it where forwards are
bound by memory.
"""

from __future__ import annotations

from typing import Literal

from drafters.checkpoints.model_sizes import cache_numbers
from drafters.errors import PoolError
from drafters.kinds.base import BuildContext, Confidence, DrafterEntry, Footprint, SizeContext, register
from drafters.kinds.lm import LMDrafter
from drafters.models.int8 import int8_bytes, packed_bytes, products_of
from drafters.models.onnx_decoder import OnnxDecoder, unsupported
from drafters.source import Quantization


@register
class QuantizedEntry(DrafterEntry):
    """A drafter of kind ``quantized``; it is refused where ONNX Runtime does not run the target."""

    title = "quantised target"
    description = "the target itself with its weights rounded to 8 bits, on a CPU; needs no other model"
    needs_target = True

    kind: Literal["quantized"]
    confidence: Confidence = 0.0

    @property
    def stored_as(self) -> Quantization:
        return "int8"

    def footprint(self, context: SizeContext) -> Footprint:
        model, size = context.target, context.dtype.itemsize
        self._check("quantised weights" if context.quantization else unsupported(model, context.dtype, context.device))
        cache = size * context.tokens * cache_numbers(model.config)
        return Footprint(model.num_parameters(), packed_bytes(model, int8=True), cache)  # forwards are as the target's

    def build(self, context: BuildContext) -> LMDrafter:
        model = context.model
        self._check(unsupported(model, model.dtype, str(model.device)))
        decoder = OnnxDecoder(model, int8=True)
        drafter = LMDrafter(self.name, decoder, context.target.vocab_size, confidence=self.confidence)
        drafter.outputs, drafter.stored_bytes = drafter.vocab_size, int8_bytes(*products_of(model))
        return drafter

    def _check(self, why: str | None) -> None:
        """Raise PoolError where ONNX Runtime does not run the target, if there is a reason ``why``."""
        if why:
            raise PoolError(
                f"drafter {self.name!r}: kind quantized needs a target that ONNX Runtime can run; it cannot run this: "
                f"{why}; leave the drafter out"
            )
