"""A trained pool on the Hub: what is uploaded where, and what its pages say."""

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import huggingface_hub
import pytest
import yaml

from drafters.card import Card
from drafters.errors import TrainingError
from drafters.router import Router
from drafters.source import Source
from multidraft.training.answers import Asking
from multidraft.training.plan import Plan, Shape
from multidraft.training.prompts import TaskPrompts
from multidraft.training.publish import card_of, check_login, check_push, licence_of, model_card, push, train_router


@pytest.fixture
def plan(tmp_path):
    tasks = {"math": TaskPrompts(["add two", "add ten"], ["add six"]), "code": TaskPrompts(["def f"], ["def g"])}
    target = Source.model_validate({"id": "org/target", "revision": "abc"})
    return Plan(target, "lm", Shape(2, 64), tasks, tmp_path / "My Pool", tmp_path / "work", Asking((0.0,)))


@pytest.fixture
def api(monkeypatch):
    """The Hub: repositories with their files."""

    class FakeApi:
        repositories: ClassVar[dict[str, dict[str, bytes]]] = {}
        private: ClassVar[dict[str, bool]] = {}
        fails = False

        def whoami(self):
            if self.fails:
                raise OSError("401: who are you?")
            return {"name": "me"}

        def create_repo(self, repo_id, private, exist_ok):
            assert exist_ok
            self.repositories.setdefault(repo_id, {})
            self.private[repo_id] = private

        def upload_folder(self, repo_id, folder_path, commit_message):
            if self.fails:
                raise OSError("403: not yours\nmore")
            for file in Path(folder_path).iterdir():
                self.repositories[repo_id][file.name] = file.read_bytes()
            return SimpleNamespace(oid=f"commit-of-{repo_id}")

        def upload_file(self, path_or_fileobj, path_in_repo, repo_id):
            content = path_or_fileobj if isinstance(path_or_fileobj, bytes) else Path(path_or_fileobj).read_bytes()
            self.repositories[repo_id][path_in_repo] = content

    monkeypatch.setattr(FakeApi, "repositories", {})
    monkeypatch.setattr(huggingface_hub, "HfApi", FakeApi)
    return FakeApi


@pytest.fixture
def finished(plan):
    for name in plan.drafters:
        (plan.out / name).mkdir(parents=True)
        (plan.out / name / "model.safetensors").write_text(name)
    train_router(plan)
    (plan.out / "README.md").write_text("page")
    plan.card.write_text(yaml.safe_dump(card_of(plan, 64)))
    return plan


def test_a_pool_goes_to_the_hub(finished, api):
    assert push(finished.out, "me/pool", private=True) == "https://huggingface.co/me/pool"
    assert set(api.repositories) == {"me/pool", "me/pool-general", "me/pool-math", "me/pool-code"}
    assert api.repositories["me/pool-math"] == {"model.safetensors": b"math"} and all(api.private.values())
    there = api.repositories["me/pool"]
    assert set(there) == {"card.yaml", "README.md", "router/router.json", "router/router.safetensors"}
    card = Card.model_validate(yaml.safe_load(there["card.yaml"]))
    assert [(d.name, d.id, d.revision) for d in card.drafters] == [
        (name, f"me/pool-{name}", f"commit-of-me/pool-{name}") for name in ("general", "math", "code")
    ]
    assert card.target.id == "org/target" and card.target.revision == "abc"
    with tempfile.TemporaryDirectory() as folder:
        for name, content in there.items():
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            (Path(folder) / name).write_bytes(content)
        assert set(Router.load(Path(folder) / str(card.router)).drafters) == {"math", "code"}
    assert Card.model_validate(yaml.safe_load(finished.card.read_text())).drafters[0].path == "general"


def test_what_the_hub_refuses_is_told(finished, api, monkeypatch):
    monkeypatch.setattr(api, "fails", True)
    with pytest.raises(TrainingError, match=r"cannot push to me/pool: 403: not yours\. The pool is whole in"):
        push(finished.out, "me/pool")
    with pytest.raises(TrainingError, match="not logged in to the Hub"):
        check_login()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((None, True, "org/target"), "give --push too"),
        (("me/pool", False, None), "--push needs a target given by its name on the Hub"),
        (("nonsense", False, "org/target"), "--push must be USER/NAME, the repository on the Hub, got 'nonsense'"),
        (("", True, "org/target"), "--push must be USER/NAME"),
    ],
)
def test_what_cannot_be_pushed_is_told_first(given, said):
    with pytest.raises(TrainingError, match=said):
        check_push(*given)


def test_what_can_be_pushed_or_need_not_passes():
    check_push("me/my-pool_1.0", True, "org/target")
    check_push(None, False, None)


def test_the_card_of_a_pool(plan):
    card = Card.model_validate(card_of(plan, 64))
    assert card.name == "my-pool" and card.title == "Small language models for target" and str(card.router) == "router"
    assert [(e.task, e.prompt) for e in card.examples] == [("math", "add six"), ("code", "def g")]


def test_the_page_of_a_pool(plan):
    matrix = {"math": {"general": 2.0, "math": 3.5, "code": 1.0}, "code": {"general": 2.5, "math": 1.0, "code": 1.5}}
    page = model_card(plan, "Drafters.", [], matrix, 0.5, "mit")
    head = yaml.safe_load(page.split("---")[1])
    assert head["base_model"] == "org/target" and head["license"] == "mit"
    assert "| math | 3.50* | 1.00 |" in page and "sends 50% of the held-out prompts" in page
    assert "| math | 2 | 1 | 0 |" in page and "new weights (layers: 2, width 64), the specialists start" in page


def test_the_licence_of_a_target(tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A model\n")
    assert licence_of(str(tmp_path)) == "apache-2.0"
    assert licence_of(str(tmp_path / "nowhere" / "deep" / "er")) is None
    (tmp_path / "README.md").write_text("# A model\n")
    assert licence_of(str(tmp_path)) is None
