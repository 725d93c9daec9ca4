"""What each policy itself costs: a decision with its update, per round, and the replay of a text, without any model.

python -m tests.perf.policies --drafters 8 --draft-length 8
"""

import argparse
import json
import time
from collections.abc import Sequence

import numpy as np

from drafters.costs import CostMeter, Costs
from multidraft.bench.simulate import draw_table
from multidraft.bench.table import markdown
from multidraft.policies import NO_DRAFTER, POLICIES, Context, Feedback, make_policy
from multidraft.policies.specs import without_divergence
from multidraft.replay.walk import replay


def microseconds_per_round(
    name: str, drafters: int = 8, draft_length: int = 8, rounds: int = 1000, repeats: int = 5
) -> float:
    """Mean time of a decision with its update, over rounds of random feedback; the least of several such means.

    What else goes on in the machine can only add to it, as the documentation of ``timeit`` has it.

    Args:
        name: a policy's name; ``fixed`` is given its first drafter.
        drafters: arms N.
        draft_length: K.
        rounds: rounds played, every ``repeats`` times.
    """
    return min(_mean_microseconds(name, drafters, draft_length, rounds) for _ in range(repeats))


def _mean_microseconds(name: str, drafters: int, draft_length: int, rounds: int) -> float:
    spec = f"{name}:arm0" if name == "fixed" else name
    rng = np.random.default_rng(0)
    policy = make_policy(spec, drafters)
    meter = CostMeter(drafters)
    for _ in range(50 * drafters):  # as after some text: every cost is known
        arm, length = int(rng.integers(drafters)), int(rng.integers(1, draft_length + 1))
        meter.played(arm, length, length, 0.003, 0.008, emitted=3)
        meter.evaluated(0.003 + 0.0002 * meter.unread.mean)
    policy.begin(Context("prompt", draft_length, meter, lambda prompt: [1.0 / drafters] * drafters))
    waiting: list[np.ndarray] = []
    spent = 0.0
    for _ in range(rounds):
        begun = time.perf_counter()
        policy.probabilities()
        arm = policy.select()
        length = min(policy.draft_length(draft_length), draft_length) if arm != NO_DRAFTER else 0
        spent += time.perf_counter() - begun
        accepted = min(int(rng.geometric(0.3)) - 1, length)
        waiting.append((rng.random((accepted + 1, drafters)) < 0.6).astype(np.float64))
        begun = time.perf_counter()
        wanted = policy.uses_gamma and policy.wants_evaluation(accepted + 1)
        spent += time.perf_counter() - begun
        gamma = np.repeat(np.concatenate(waiting)[:, None], draft_length, axis=1) if wanted else None
        waiting = [] if wanted else waiting
        feedback = Feedback(max(arm, 0) if length else arm, length, accepted, accepted + 1, length, 0.5, gamma, 0.01)
        begun = time.perf_counter()
        policy.update(feedback)
        spent += time.perf_counter() - begun
    return 1e6 * spent / rounds


def milliseconds_to_replay(name: str, drafters: int = 8, draft_length: int = 8, tokens: int = 500) -> float:
    """Median time of five replays of a text, with costs: one good drafter among fair ones.

    Args:
        name, drafters, draft_length: as in :func:`microseconds_per_round`.
        tokens: length of the text.
    """
    rng = np.random.default_rng(0)
    gamma = np.full((drafters, tokens), 0.5)
    gamma[-1] = 0.85
    table = draw_table(gamma, draft_length, rng)
    costs = Costs.uniform(drafters, draft_length, step=0.1, verify=1.0, evaluate=0.5)
    spec = without_divergence(f"{name}:arm0" if name == "fixed" else name)
    spent = []
    for seed in range(5):
        begun = time.perf_counter()
        replay(table, spec, seed, draft_length=draft_length, costs=costs, route=lambda prompt: [0.5] * drafters)
        spent.append(time.perf_counter() - begun)
    return 1e3 * sorted(spent)[2]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every policy and print the times."""
    parser = argparse.ArgumentParser(prog="python -m tests.perf.policies", description=__doc__.partition("\n")[0])
    parser.add_argument("--drafters", type=int, default=8, help="arms (default: %(default)s)")
    parser.add_argument("--draft-length", type=int, default=8, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1000, help="rounds per measurement (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the times as JSON")
    options = parser.parse_args(arguments)
    shape = options.drafters, options.draft_length
    times = {
        name: (microseconds_per_round(name, *shape, rounds=options.rounds), milliseconds_to_replay(name, *shape))
        for name in sorted(POLICIES)
    }
    if options.json:
        print(json.dumps({name: {"microseconds": us, "replay_milliseconds": ms} for name, (us, ms) in times.items()}))
        return
    rows = ((name, f"{us:.0f}", f"{ms:.1f}") for name, (us, ms) in times.items())
    print(markdown(["policy", "µs per round", "ms to replay 500 tokens"], rows))


if __name__ == "__main__":
    main()
