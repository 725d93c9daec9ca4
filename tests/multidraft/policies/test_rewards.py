"""What bandits are paid: BD or BE of the drafter they played (MetaSD Eqs. 3 and 4), emitted tokens (BanditSpec)."""

import pytest

from drafters.errors import PolicyError
from multidraft.policies import NO_DRAFTER, Feedback
from multidraft.policies.exp3 import DrawnArm
from multidraft.policies.rewards import AlignmentBandit, emitted_reward


class Paid(AlignmentBandit, DrawnArm):
    """Keeps what it is paid."""

    name = "paid"

    def reset(self):
        super().reset()
        self.paid = []

    def learn(self, arm, reward):
        self.paid.append((self.t, arm, reward))


def feedback(arm=1, drafted=4, accepted=1, emitted=2, draft_length=4, block_divergence=0.75):
    return Feedback(arm, drafted, accepted, emitted, draft_length, block_divergence)


@pytest.mark.parametrize(
    ("emitted", "draft_length", "reward"), [(1, 4, 0.0), (2, 4, 0.25), (5, 4, 1.0), (2, 1, 1.0), (1, 0, 0.0)]
)
def test_the_target_s_own_token_earns_nothing(emitted, draft_length, reward):
    assert emitted_reward(feedback(emitted=emitted, draft_length=draft_length)) == reward


@pytest.mark.parametrize(("setting", "paid"), [("bd", 0.75), ("be", 0.25)])
def test_a_bandit_is_paid_what_its_setting_says(setting, paid):
    policy = Paid(["a", "b"], reward=setting)
    assert policy.uses_block_divergence == (setting == "bd")
    assert policy.p == [0.5, 0.5]  # classes after it in the order of resolution are reset too
    policy.update(feedback())
    policy.update(feedback(NO_DRAFTER, 0, 0, 1, 0))
    assert policy.last_reward == paid
    policy.update(feedback(0, drafted=0, accepted=0, emitted=1))
    assert policy.last_reward == 0.0
    assert policy.paid == [(1, 1, paid), (2, 0, 0.0)]


def test_block_divergence_that_is_missing_is_not_taken_for_another_reward():
    with pytest.raises(PolicyError, match="use the setting reward=be"):
        Paid(["a", "b"]).update(feedback(block_divergence=None))
