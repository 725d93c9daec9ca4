"""A head that learns: the output stays the target's, nothing is read for it, and it draws on what was trained."""

import copy
import random
from collections import Counter

import pytest
import torch

from drafters.base import Evidence, Lesson
from drafters.checkpoints.eagle import read_head
from drafters.errors import PoolError
from drafters.kinds.eagle import EagleDrafter
from drafters.kinds.eagle_student import EagleStudent
from drafters.kinds.suffix import SuffixDrafter
from drafters.learning.heads import HeadCourse
from drafters.learning.learner import Learner, Schedule
from drafters.memory import estimate
from drafters.models.target import Target
from drafters.pool import load_pool
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import generate
from multidraft.replay.regret import acceptance_table
from multidraft.replay.walk import replay
from tests import heads, tiny
from tests.distributions import ALPHA, exact_outputs, p_value
from tests.drafters.kinds.test_student import PARAMS, PROMPTS, answered, little  # noqa: F401


def pool_in(folder, layout="eagle3", **known):
    card = tiny.write_pool(folder, drafters=[{"name": "again", "kind": "suffix"}])
    target = load_pool(card).target.model
    heads.write_head(folder / layout, layout, target, 0)
    entry = {"name": "student", "kind": "eagle-student", "path": layout, "share": 0.5}
    drafters = [entry, {"name": "again", "kind": "suffix"}]
    return tiny.load(tiny.change_card(card, drafters=drafters), **known)


def school(pool):
    """Answer these and learn from them, until there is a version that guesses more."""
    learner = answered(pool, Schedule(0.5, 8192, 40, 1e-2, 512))
    held = list(learner.held)
    first = learner.current
    before = sum(learner.course.agreed(first.model, lesson) for lesson in held)
    for _ in range(400):
        pool.study()
        if sum(learner.course.agreed(learner.current.model, lesson) for lesson in held) > before:
            return first
    raise AssertionError("it learnt nothing")


def test_it_learns_without_a_forward_of_the_target_and_drafts_with_what_it_has_learnt(tmp_path, monkeypatch):
    pool = pool_in(tmp_path, learnt=tmp_path / "learnt")
    twin = pool.twin()
    student = pool.drafters[0]

    def refuse(*_):
        raise AssertionError("the target reads a text once more")

    with monkeypatch.context() as patch:
        patch.setattr(pool.target._features, "read", refuse)
        first = school(pool)
    kept = next(iter(student.learner.memory))
    expected = tiny.states_of(pool.target.model, [*kept.prompt, *kept.answer], student.layers)[:-1]
    torch.testing.assert_close(kept.states.float(), expected, rtol=2e-2, atol=2e-2)
    for each in (pool, twin):
        accepted, versions = 0, set()
        for prompt in PROMPTS[:6]:
            ids = each.encode(prompt)
            out = generate(each, prompt, "fixed:student", PARAMS)
            assert out.token_ids[:16] == tiny.greedy(each.target.model, ids, 16)[: len(out.token_ids)]
            place = each.drafters[0].place(ids)
            assert out.versions == {"student": str(student.learner.version_for(place).version)}
            versions |= {*out.versions.values()}
            table = acceptance_table(each, ids, out.token_ids, 4)
            assert replay(table, "fixed:arm0").rounds == len(out.rounds)
            accepted += sum(round.accepted for round in out.rounds)
        assert accepted and str(student.learner.current.version) in versions
        assert student.learner.current.version != first.version
    again = pool_in(tmp_path, learnt=tmp_path / "learnt")
    assert again.drafters[0].version == str(student.learner.current.version) and again.card_hash == pool.card_hash


def test_sampled_outputs_follow_the_target(tmp_path):
    pool = pool_in(tmp_path)
    school(pool)
    params, prompt = SamplingParams(2, temperature=1.5, draft_length=2), PROMPTS[0]
    exact = exact_outputs(pool.target.model, pool.encode(prompt), params)
    runs = [generate(pool, prompt, "fixed:student", params, seed) for seed in range(250)]
    assert sum(r.accepted for run in runs for r in run.rounds) > 20
    assert p_value(Counter(tuple(run.token_ids) for run in runs), exact) > ALPHA


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    folder, target = tmp_path_factory.mktemp("head"), tiny.llama(1)
    heads.write_head(folder, "eagle3", target, 0)
    shape, tensors = read_head(folder, target)
    course = HeadCourse(shape, target)
    return target, course, course.begin(tensors, "drafter 's'"), tensors


def lesson_of(target, layers, prompt, answer):
    text = [*prompt, *answer]
    top = tiny.logits_of(target, text)[len(prompt) - 1 : -1].softmax(-1).topk(8)
    return Lesson(prompt, answer, top.indices, top.values, tiny.states_of(target, text, layers)[:-1])


def test_the_head_that_learns_begins_as_the_one_that_was_read(course):
    """But for tokens that the reduced head did not know; and its loss is that of each token's forward by itself."""
    target, teaching, head, tensors = course
    runner = teaching.runner(head)
    lessons = [lesson_of(target, head.layers, *texts) for texts in (([3, 4, 5], [6, 7, 8, 1]), ([9], [2, 4, 3]))]
    plain = heads.EagleHead(teaching.shape, tensors, target)
    loss, count, hits = 0.0, 0, 0
    for lesson in lessons:
        text = [*lesson.prompt, *lesson.answer]
        for place, row in zip(range(len(lesson.prompt), len(text)), range(len(lesson.answer)), strict=True):
            if place < 2:
                continue
            pairs = torch.tensor(text[1:place])
            logits = runner.step(pairs, runner.fuse(lesson.states[: place - 1]), 0).logits[-1]
            other = plain.step(pairs, plain.fuse(lesson.states[: place - 1]), 0).logits[-1]
            torch.testing.assert_close(logits[plain.to_target], other, rtol=1e-4, atol=1e-4)
            shares = lesson.top_probs[row] / lesson.top_probs[row].sum()
            loss -= float((shares * logits.log_softmax(-1)[lesson.top_ids[row]]).sum())
            hits += int(logits.argmax()) == text[place]
            count += 1
    alone = copy.copy(teaching)
    alone.rng = type("Never", (), {"random": lambda self: 1.0})()
    scale = sum(0.7**step for step in range(5))
    assert alone.loss(head, lessons).item() == pytest.approx(loss / count / scale, rel=1e-3)
    assert sum(teaching.agreed(head, lesson) for lesson in lessons) == hits
    assert not teaching.fits(Lesson([3, 4], [5])) and teaching.fits(lessons[0])


def test_each_draft_is_the_head_s_or_copied_from_the_text_whichever_is_surer(course):
    """And judged on a text as what is drafted at each of its positions, in greedy runs and in sampled ones."""
    target, teaching, head, _ = course
    source = Target(target)
    learner = Learner(teaching, head, Schedule())
    drafter = EagleStudent("student", learner, source, tiny.VOCAB, 0.05)
    rng = random.Random(0)
    text = [rng.randrange(4, 12) for _ in range(25)]
    text += text[5:25] + [rng.randrange(4, 12) for _ in range(10)]
    source.prefill(text[:-1])
    plain = EagleDrafter("plain", teaching.runner(head), source, tiny.VOCAB, confidence=0.05)
    copier = SuffixDrafter("copier", confidence=0.05)
    generator, start, length = torch.Generator(), 30, 4
    for params in (SamplingParams(draft_length=length), SamplingParams(temperature=0.7, draft_length=length)):
        p = None if params.greedy else torch.rand(len(text) - start, tiny.VOCAB).softmax(-1)
        evidence = Evidence(text, start, p, params)
        gammas = [each.gamma(evidence) for each in (drafter, plain, copier)]
        taken = []
        for begin in range(2, len(text)):
            draft = drafter.propose(text[:begin], length, params, generator)
            row = plain.head.read(text[:begin], source, last=1).logits[0]
            copied = copier.rated(text[:begin], length)
            taken.append(copied.chance > float(row.softmax(-1).max()))
            assert draft.sampled == (not params.greedy and not taken[-1])
            if params.greedy:
                other = plain.propose(text[:begin], length, params, generator)
                assert draft.tokens == (copied.draft if taken[-1] else other).tokens
            for depth in range(length):
                if start <= begin + depth < len(text):
                    expected = gammas[2 if taken[-1] else 1][begin + depth - start, depth]
                    assert gammas[0][begin + depth - start, depth] == pytest.approx(expected, abs=1e-5)
        assert 5 < sum(taken) < len(taken) - 5
    fed, step = list[int](), drafter.head.step
    drafter.head.step = lambda ids, *rest, **options: fed.append(len(ids)) or step(ids, *rest, **options)
    drafter.gamma(evidence)
    assert len(fed) == length - 1 and fed == sorted(set(fed), reverse=True), "once at each depth below the first"


@pytest.mark.parametrize(
    ("layout", "message"),
    [("eagle1", "EAGLE-1 or -2 head"), ("speculators-qwen3", "cannot be trained: .*As kind eagle it drafts")],
)
def test_heads_that_cannot_be_trained_are_refused(tmp_path, layout, message):
    with pytest.raises(PoolError, match=message):
        pool_in(tmp_path, layout)


def test_a_head_that_reads_with_the_targets_output_layer_is_told_what_it_lacks(tmp_path, monkeypatch):
    written = heads.tensors_of
    monkeypatch.setattr(heads, "DRAFT_IDS", [*range(tiny.VOCAB)])
    monkeypatch.setattr(
        heads, "tensors_of", lambda *of: {name: t for name, t in written(*of).items() if name != "lm_head.weight"}
    )
    with pytest.raises(PoolError, match=r"no output layer of its own.* copy the target's .* as lm_head\.weight"):
        pool_in(tmp_path)


def test_its_memory_counts_training_and_what_it_keeps(tmp_path):
    pool = pool_in(tmp_path)
    student = pool.drafters[0]
    whole = estimate(pool.card, tmp_path / "card.yaml", "cpu")
    found = next(part for part in whole.parts if part.name == "student")
    assert found.parameters == pytest.approx(student.parameter_count, abs=tiny.VOCAB)
    assert student.parameter_count == sum(p.numel() for p in student.learner.model.parameters())
    states = 2 * len(student.layers) * pool.target.model.config.hidden_size
    assert whole.working > 50_000 * states + 16 * found.parameters
