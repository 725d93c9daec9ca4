"""A target and a drafter over five tokens, whose outputs of three can be enumerated."""

import inspect
import itertools
import math
from collections import Counter

import torch

from drafters.draft import Draft
from drafters.sampling import SamplingParams, probabilities
from multidraft.engine import verify as verify_module
from multidraft.engine.verify import verify
from tests.distributions import ALPHA, p_value
from tests.engine_cases import paths_of

V = 5
LENGTH = 3
SAMPLES = 1000

PARAMS = {
    "plain": SamplingParams(temperature=1.0),
    "hot": SamplingParams(temperature=1.7),
    "top-k": SamplingParams(temperature=0.9, top_k=3),
    "top-p": SamplingParams(temperature=1.2, top_p=0.8),
    "both": SamplingParams(temperature=1.0, top_k=4, top_p=0.9),
}
HISTORY = [0, 1, 2, 0, 1, 3, 0, 2, 4, 1, 1, 0, 1, 2, 3, 3, 0, 4, 0, 1]
"""A text for drafters that copy."""


ELSEWHERE = {'probs.device.type == "cpu"': "False"}
"""What makes verification go on as it does on a GPU."""


def verify_changed(changes):
    """``verify`` with something in the source of its module replaced."""
    source = inspect.getsource(verify_module)
    for old, new in changes.items():
        assert old in source
        source = source.replace(old, new)
    namespace = {"__name__": verify_module.__name__}
    exec(compile(source, "changed", "exec"), namespace)
    return namespace["verify"]


verify_elsewhere = verify_changed(ELSEWHERE)


class World:
    """Random logits after each pair of last tokens."""

    def __init__(self, params):
        generator = torch.Generator().manual_seed(7)
        shape = (V + 1, V + 1, V)
        self.params = params
        self.logits = 1.5 * torch.randn(shape, generator=generator)
        self.p = probabilities(self.logits, params)
        self.q = probabilities(0.6 * self.logits + 1.2 * torch.randn(shape, generator=generator), params)

    @staticmethod
    def after(prefix):
        """Index of the state after ``prefix``; V stands for no token."""
        last = (V, V, *prefix)
        return last[-2], last[-1]

    def score(self, draft, prefix=()):
        """Logits of a draft after ``prefix``."""
        places = [prefix, *((*prefix, *path) for path in paths_of(draft))]
        return torch.stack([self.logits[self.after(place)] for place in places])

    def exact(self):
        """Probability of each output of ``LENGTH`` tokens."""
        exact = {}
        for output in itertools.product(range(V), repeat=LENGTH):
            steps = [float(self.p[self.after(output[:i])][output[i]]) for i in range(LENGTH)]
            exact[output] = math.prod(steps)
        return exact

    def grow(self, prefix, generator, widths, *, sampled):
        """A draft in which each node of depth ``d`` has ``widths[d]`` children (fewer where q has no more)."""
        tokens, parents, rows = [], [], []
        level = [(-1, tuple(prefix))]
        for width in widths:
            deeper = []
            for parent, place in level:
                q = self.q[self.after(place)]
                count = min(width, int((q > 0).sum()))
                if sampled:
                    chosen = torch.multinomial(q, count, generator=generator).tolist()  # without replacement
                else:
                    chosen = q.topk(count).indices.tolist()
                for token in chosen:
                    deeper.append((len(tokens), (*place, token)))
                    tokens.append(token)
                    parents.append(parent)
                    rows.append(q)
            level = deeper
        return Draft(tuple(tokens), tuple(parents), torch.stack(rows) if rows else None, sampled)

    def sample(self, propose, seed, verify=verify, observe=lambda draft, logits: None):
        """An output for which ``propose(output, generator)`` drafts."""
        generator, output = torch.Generator().manual_seed(seed), ()
        while len(output) < LENGTH:
            draft = propose(output, generator)
            logits = self.score(draft, output)
            verdict = verify(draft, logits, self.params, generator)
            observe(draft, logits)
            output = (*output, *(draft.tokens[node] for node in verdict.path), verdict.own)
        return output[:LENGTH]

    def p_value(self, propose, samples=SAMPLES, verify=verify):
        return p_value(Counter(self.sample(propose, seed, verify) for seed in range(samples)), self.exact())


def check_outputs_follow_the_target(drafter, params, samples, length=3, drafts=1):
    """Sampled outputs after ``HISTORY``, for each of which a drafter of point masses drafts more than ``drafts``."""
    world, counts, drafted = World(params), Counter(), 0

    def propose(output, generator):
        nonlocal drafted
        draft = drafter.propose([*HISTORY, *output], length, params, generator)
        assert draft.q is None and not draft.sampled
        drafted += len(draft)
        return draft

    for seed in range(samples):
        drafter.prepare(HISTORY)
        counts[world.sample(propose, seed, observe=drafter.observe)] += 1
    assert drafted > drafts * samples
    assert p_value(counts, world.exact()) > ALPHA
