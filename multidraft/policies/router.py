"""The static baseline of the papers: decide by the prompt, once."""

from __future__ import annotations

from collections.abc import Sequence

from multidraft.policies.base import Policy, register


@register
class Router(Policy):
    """The drafter that the pool's router finds most suited to the prompt, for the whole query."""

    name = "router"
    title = "Router"
    explanation = (
        "A classifier reads the prompt and picks the drafter made for that kind of task, before anything is written. "
        "It costs next to nothing and is right at once where prompts look like those it was trained on; it never "
        "changes its mind, even when the answer turns to another subject."
    )
    source = "Static routing, the baseline of MetaSD §4 and HedgeSpec §4"
    needs_route = True

    def reset(self) -> None:
        suited = self.context.suited()
        self.arm = max(range(self.arm_count), key=suited.__getitem__) if suited else 0

    def select(self) -> int:
        return self.arm

    def candidates(self) -> Sequence[int]:
        return (self.arm,)
