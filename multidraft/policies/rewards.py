"""What a bandit credits to the arm it played, in [0, 1]."""

from __future__ import annotations

from drafters.errors import PolicyError
from multidraft.policies.base import NO_DRAFTER, Feedback, Policy
from multidraft.policies.settings import Reward, WarmStart


def emitted_reward(feedback: Feedback) -> float:
    """``(y - 1) / K`` for ``y`` emitted tokens: BanditSpec's reward ``y in 1..K+1`` brought to [0, 1].

    Every round emits one token whatever the drafter does, so that token earns no reward.
    """
    return (feedback.emitted - 1) / feedback.draft_length if feedback.draft_length else 0.0


class AlignmentBandit(Policy):
    """A bandit on BD or BE of the drafter it played, 0 where that had nothing to propose; subclasses override
    :meth:`learn`."""

    class Settings(WarmStart):
        reward: Reward = "bd"

    def reset(self) -> None:
        super().reset()
        self.uses_block_divergence = self.settings.reward == "bd"

    def learn(self, arm: int, reward: float) -> None:
        """Count a pull of ``arm`` that was worth ``reward``; :attr:`t` counts it already."""
        raise NotImplementedError

    def update(self, feedback: Feedback) -> None:
        if feedback.arm == NO_DRAFTER:  # a round without a drafter says nothing about any
            return
        self.t += 1
        if feedback.drafted == 0:
            self.last_reward = 0.0
        elif self.settings.reward == "be":
            self.last_reward = feedback.block_efficiency
        elif feedback.block_divergence is None:
            raise PolicyError("these rounds have no block divergence to learn from; use the setting reward=be")
        else:
            self.last_reward = feedback.block_divergence
        self.learn(feedback.arm, self.last_reward)
