"""A student learns what its target writes, takes over when it is no worse, and never costs more than its share."""

import copy
from dataclasses import replace

import pytest
import torch

from drafters.base import Lesson
from drafters.errors import PoolError
from drafters.learning import learner as learning
from drafters.learning import versions as versioning
from drafters.learning.distil import ModelCourse, answer_logits, batch_of
from drafters.learning.learner import Learner, Schedule
from drafters.learning.memory import held_out
from drafters.learning.versions import Version, Versions
from tests import tiny

FAST = Schedule(share=0.5, memory=8192, passes=100, rate=5e-3, every=512)


class Clock:
    """Every look at it takes a tenth of a second."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 0.1
        return self.now


@pytest.fixture(autouse=True)
def little(monkeypatch):
    monkeypatch.setattr(learning, "BATCH", 128)
    monkeypatch.setattr(learning, "MEASURED", 40)


@pytest.fixture(scope="module")
def lessons():
    """What a target writes, with its likeliest tokens."""
    target, found = tiny.llama(1), []
    prompts = tiny.prompts(100, seed=5, shortest=4, longest=4)
    for prompt, answer in zip(prompts, tiny.greedy_batch(target, prompts, 12), strict=True):
        top = tiny.logits_of(target, [*prompt, *answer])[len(prompt) - 1 : -1].softmax(-1).topk(8)
        found.append(Lesson(prompt, answer, top.indices, top.values))
    return found


def worked(learner, steps=80):
    for _ in range(steps):
        learner.clock.now += 1.0
        learner.study()
    return learner


def taught(lessons, **known):
    learner = Learner(ModelCourse(), tiny.llama(9), known.pop("schedule", FAST), clock=Clock(), **known)
    for lesson in lessons:
        learner.learn(lesson)
    return learner


@pytest.mark.parametrize("distributions", [True, False])
def test_it_learns_and_swaps_only_when_no_worse_on_held_out_texts(lessons, distributions):
    given = [lesson if distributions else Lesson(lesson.prompt, lesson.answer) for lesson in lessons]
    learner = taught(given)
    held = [lesson for lesson in lessons if held_out(lesson)]
    assert held and sum(len(lesson.answer) for lesson in held) >= 40
    first = learner.current
    before = sum(ModelCourse().agreed(first.model, lesson) for lesson in held)
    worked(learner)
    assert learner.current.version.number > 0
    after = sum(ModelCourse().agreed(learner.current.model, lesson) for lesson in held)
    assert after > before and learner.current.agreement == after / learner.current.tokens
    assert first.version.number == 0 and sum(ModelCourse().agreed(first.model, lesson) for lesson in held) == before
    assert not any(held_out(lesson) for lesson in learner.memory)


def test_a_copy_that_is_worse_does_not_take_over_and_is_given_up(lessons, monkeypatch):
    learner = taught(lessons, schedule=Schedule(share=0.5, memory=8192, passes=100, rate=0.9, every=128))
    restarted, restart = [], learner._restart
    monkeypatch.setattr(learner, "_restart", lambda: restarted.append(learner._failed) or restart())
    worked(learner)
    assert learning.PATIENCE in restarted
    for name, weight in learner.current.model.state_dict().items():
        assert weight.isfinite().all(), name


def test_nothing_swaps_without_enough_to_measure_with(lessons, monkeypatch):
    monkeypatch.setattr(learning, "MEASURED", 10_000)
    assert worked(taught(lessons)).current.version.number == 0


def test_the_device_is_used_for_its_share_only(lessons):
    learner, spent = taught(lessons, schedule=Schedule(share=0.25, memory=8192, passes=1e6)), 0.0
    begun = learner.clock.now
    for _ in range(100):
        learner.clock.now += 0.01
        spent += learner.study()
    assert 0.2 < spent / (learner.clock.now - begun) <= 0.26


def test_it_ends_when_all_has_been_learnt(lessons):
    learner = taught(lessons[:8], schedule=Schedule(share=0.5, memory=8192, passes=3, every=1024))
    worked(learner, 100)
    assert not learner.owing and learner.study() == 0.0
    learner.learn(lessons[0])
    assert not learner.owing, "known already"
    learner.learn(Lesson([3, 3], []))
    learner.learn(Lesson([3] * 80, [4]))
    assert not learner.owing, "nothing was written, or more than it can read"
    for lesson in lessons[20:30]:
        learner.learn(lesson)
    assert learner.owing


def test_versions_outlast_the_process_and_are_bounded(lessons, tmp_path, monkeypatch):
    monkeypatch.setattr(versioning, "KEPT", 2)
    learner = worked(taught(lessons, folder=tmp_path / "s"))
    files = sorted(file.name for file in (tmp_path / "s").iterdir())
    number = learner.current.version.number
    assert len(files) == min(2, number) and files[-1] == f"{number:06}-{learner.current.version.digest}.safetensors"
    again = Learner(ModelCourse(), tiny.llama(9), FAST, tmp_path / "s")
    assert again.current.version == learner.current.version
    for name, weight in again.current.model.state_dict().items():
        assert torch.equal(weight, learner.current.model.state_dict()[name])
    with pytest.raises(PoolError, match=r"learnt from other weights.*remove"):
        Learner(ModelCourse(), tiny.llama(8), FAST, tmp_path / "s")
    (tmp_path / "s" / files[-1]).write_bytes(b"broken")
    with pytest.raises(PoolError, match=f"{files[-1]} cannot be read"):
        Learner(ModelCourse(), tiny.llama(9), FAST, tmp_path / "s")


class Reading(ModelCourse):
    """A course that reads what stands in the lessons of where they stand."""

    def place(self, prompt, states):
        return None if states is None else torch.nn.functional.normalize(states[: prompt - 1].mean(dim=0), dim=0)


def test_of_texts_unlike_all_that_it_learnt_from_it_drafts_as_it_began(lessons, tmp_path):
    torch.manual_seed(0)
    given = [replace(lesson, states=1.0 + 0.3 * torch.randn(16, 8)) for lesson in lessons]
    learner = Learner(Reading(), tiny.llama(9), FAST, tmp_path / "s", clock=Clock())
    strange = torch.tensor([1.0, -1.0] * 4) / 8**0.5
    assert learner.version_for(strange) is learner.current is learner.start
    for lesson in given:
        learner.learn(lesson)
    worked(learner)
    assert learner.current.version.number > 0 == learner.start.version.number
    held = [Reading().place(len(lesson.prompt), lesson.states) for lesson in given if held_out(lesson)]
    for each in (learner, Learner(Reading(), tiny.llama(9), FAST, tmp_path / "s")):
        assert each.version_for(strange) is each.start and each.start.version == learner.start.version
        assert each.version_for(None) is each.current
        assert sum(each.version_for(place) is each.current for place in held) >= 0.7 * len(held)
        assert each.current.version == learner.current.version
    for model, began in ((learner.start.model, True), (learner.current.model, False)):
        same = torch.equal(model.get_output_embeddings().weight, tiny.llama(9).get_output_embeddings().weight)
        assert same == began


def test_a_save_that_fails_leaves_the_last_version(tmp_path, monkeypatch):
    versions = Versions(tmp_path, "drafter 's'", "0" * 8)
    versions.save(Version(1, "a" * 8), {"w": torch.ones(2)})

    def fail(*_):
        raise OSError("full")

    monkeypatch.setattr("drafters.learning.versions.save_file", fail)
    with pytest.raises(OSError, match="full"):
        versions.save(Version(2, "b" * 8), {"w": torch.zeros(2)})
    version, weights = versions.newest()
    assert (version, weights["w"].tolist()) == (Version(1, "a" * 8), [1.0, 1.0])
    assert [file.suffix for file in tmp_path.iterdir()] == [".safetensors"]


def test_a_disk_that_is_full_costs_no_version(lessons, tmp_path, monkeypatch, caplog):
    (tmp_path / "s").write_text("no folder")
    learner = Learner(ModelCourse(), tiny.llama(9), FAST, clock=Clock())
    learner.versions = Versions(tmp_path / "s", "s", "")
    for lesson in lessons:
        learner.learn(lesson)
    assert worked(learner).current.version.number > 0 and "is not saved" in caplog.text


def test_logits_in_a_batch_are_those_of_each_text(lessons):
    model = tiny.llama(3)
    with torch.no_grad():
        together = answer_logits(model, batch_of(lessons[:3], model.device))
    alone = [tiny.logits_of(model, [*x.prompt, *x.answer])[len(x.prompt) - 1 : -1] for x in lessons[:3]]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-4)


def test_the_loss_is_the_cross_entropy_with_the_likeliest_tokens(lessons):
    model, lesson = tiny.llama(3), lessons[0]
    logs = tiny.logits_of(model, [*lesson.prompt, *lesson.answer])[len(lesson.prompt) - 1 : -1].log_softmax(-1)
    shares = lesson.top_probs / lesson.top_probs.sum(-1, keepdim=True)
    expected = -(shares * logs.gather(1, lesson.top_ids)).sum(-1).mean()
    assert ModelCourse().loss(model, [lesson]).item() == pytest.approx(expected.item(), rel=1e-4)
    bare = Lesson(lesson.prompt, lesson.answer)
    expected = -logs.gather(1, torch.tensor(lesson.answer)[:, None]).mean()
    assert ModelCourse().loss(model, [bare]).item() == pytest.approx(expected.item(), rel=1e-4)


def test_tokens_that_a_smaller_vocabulary_lacks_are_left_out(lessons):
    small = tiny.llama(3, vocab=tiny.VOCAB - 3)
    lesson = copy.copy(next(x for x in lessons if max(x.answer) < tiny.VOCAB - 3 and max(x.prompt) < tiny.VOCAB - 3))
    assert ModelCourse().loss(small, [lesson]).isfinite()
