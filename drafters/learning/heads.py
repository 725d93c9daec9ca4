"""How an EAGLE-3 head is taught: from the hidden states and probabilities of the target's own forwards."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from drafters.base import Lesson
from drafters.checkpoints.eagle import HeadShape
from drafters.errors import PoolError
from drafters.learning.distil import all_aims, batch_of, distillation_loss
from drafters.learning.learner import Course
from drafters.learning.memory import size
from drafters.models.eagle_head import EagleHead
from drafters.models.trainable_head import TrainableHead, drawn_steps, loss_of_steps


class HeadCourse(Course[TrainableHead, EagleHead]):
    """Teaches :class:`~drafters.models.trainable_head.TrainableHead` by EAGLE-3's training-time test (Sec. 3.2).

    Args:
        shape: of the head that it begins with.
        target: lends its embedding.
    """

    def __init__(self, shape: HeadShape, target: PreTrainedModel):
        self.shape, self.target, self.rng = shape, target, random.Random(0)
        self.embedding = target.get_input_embeddings().weight

    def begin(self, tensors: Mapping[str, torch.Tensor], who: str) -> TrainableHead:
        """The head with these tensors, to be trained. It proposes all of the target's tokens, since traffic brings
        others than it was made for; those that it did not know begin as the target's own.

        Raises:
            PoolError: it is in a layout that cannot be trained here.
        """
        config = self.shape.config
        if "lm_head.weight" not in tensors:
            raise PoolError(
                f"{who} cannot be trained: its head has no output layer of its own, and the target's does not change. "
                "As kind eagle it drafts; to let it learn, copy the target's output layer into its file as "
                "lm_head.weight"
            )
        every = torch.arange(len(self.embedding))
        own = {name: tensor for name, tensor in tensors.items() if name not in ("d2t", "embed_tokens.weight")}
        own = {name.replace("layers.0.", "midlayer."): tensor.float() for name, tensor in own.items()}
        plain = HeadShape(3, config, self.shape.vocab_size, self.shape.layers, self.shape.target_size)
        with torch.inference_mode(False):
            head = TrainableHead(self.target, every, config=config)
            weights = head.state_dict()
            if self.shape != plain or config.num_hidden_layers != 1 or {*own, "ids"} != set(weights):
                raise PoolError(
                    f"{who} cannot be trained: students that are heads have one layer and no tensors beyond EAGLE-3's "
                    "own layout (no biases, no norms of queries and keys or states). As kind eagle it drafts"
                )
            if "embed_tokens.weight" in tensors:
                self.embedding = tensors["embed_tokens.weight"].to(self.embedding.device)
            known = every[: len(own["lm_head.weight"])] + (tensors["d2t"].long() if "d2t" in tensors else 0)
            own["lm_head.weight"] = weights["lm_head.weight"].float().index_copy(0, known, own["lm_head.weight"])
            head.load_state_dict(own | {"ids": every})
        head.layers = self.shape.layers
        return head.float().to(self.embedding.device)

    def runner(self, model: TrainableHead) -> EagleHead:
        tensors = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in model.state_dict().items()}
        del tensors["ids"]
        if self.embedding is not self.target.get_input_embeddings().weight:
            tensors["embed_tokens.weight"] = self.embedding
        return EagleHead(replace(self.shape, vocab_size=len(self.embedding)), tensors, self.target)

    def fits(self, lesson: Lesson) -> bool:
        return lesson.states is not None and len(lesson.states) == size(lesson) - 1 and size(lesson) > 2

    def place(self, prompt: int, states: torch.Tensor | None) -> torch.Tensor | None:
        if states is None or prompt < 2:
            return None
        return functional.normalize(states[: prompt - 1].float().mean(dim=0), dim=0).cpu()

    def loss(self, model: TrainableHead, lessons: Sequence[Lesson]) -> torch.Tensor:
        """Cross-entropy with the target's probabilities, over a random number of steps."""
        steps, device = drawn_steps(self.rng), self.embedding.device
        first = [max(2 - len(lesson.prompt), 0) for lesson in lessons]  # a text's second token has no pair before it
        top_ids, top_probs = (part.to(device) for part in all_aims(lessons, first))
        logits = self._steps(model, lessons, steps)
        return loss_of_steps(distillation_loss(of_step, top_ids, top_probs) for of_step in logits)

    @torch.no_grad()
    def agreed(self, model: TrainableHead, lesson: Lesson) -> int:
        """How many tokens of an answer the head finds the likeliest, each from the target's states before it."""
        (logits,) = self._steps(model, [lesson], 1)
        answer = torch.tensor(lesson.answer)[-len(logits) :]
        return int((logits.argmax(dim=-1).cpu() == answer).sum())

    def _steps(self, model: TrainableHead, lessons: Sequence[Lesson], steps: int) -> list[torch.Tensor]:
        """Logits ``(answer tokens, V)`` float32 of each step, at the tokens of all answers."""
        batch, device = batch_of(lessons, self.embedding.device), self.embedding.device
        states = pad_sequence([lesson.states for lesson in lessons if lesson.states is not None], batch_first=True)
        embedded = functional.embedding(batch.ids[:, 1:], self.embedding).detach().float()
        wanted = batch.predicts_answer[:, 1:]
        return [logits.float() for logits in model(states.float().to(device), embedded, wanted, steps)]
