"""``deploy`` against a Hub that only writes down what it is asked."""

from pathlib import Path
from typing import Any

import httpx2
import huggingface_hub
import pytest
import yaml
from huggingface_hub.errors import HfHubHTTPError

from multidraft.__main__ import main
from multidraft.commands import deploy

CARD = """
name: mine
title: Mine
dtype: bfloat16
target: {id: some/target, revision: 0123456789abcdef0123456789abcdef01234567}
drafters:
  - {name: small, kind: lm, id: some/drafter, quantization: nf4}
  - {name: again, kind: lm, id: some/drafter, quantization: nf4}
  - {name: lookup, kind: pld}
"""


class FakeApi:
    """Records calls by name; ``exists`` tells whether the Space does, ``refusals`` the status with which one fails."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.exists = False
        self.refusals: dict[str, int | Exception] = {}
        self.uploaded: dict[str, bytes] = {}

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> None:
            self.calls.append((name, arguments, named))
            refusal = self.refusals.get(name)
            if isinstance(refusal, Exception):
                raise refusal
            if refusal:
                response = httpx2.Response(refusal, request=httpx2.Request("POST", "https://hub"))
                raise HfHubHTTPError("a long story", response=response, server_message="in the Hub's words")

        return call

    def repo_exists(self, repo_id: str, *, repo_type: str) -> bool:
        assert repo_type == "space"
        if isinstance(refusal := self.refusals.get("repo_exists"), Exception):
            raise refusal
        return self.exists

    def list_repo_files(self, repo_id: str, *, revision: str) -> list[str]:
        return ["README.md", "config.json", "model.safetensors", "pytorch_model.bin", "tokenizer.json"]

    def upload_folder(self, *, folder_path: Path, **named: Any) -> None:
        self.calls.append(("upload_folder", (), named))
        files = [file for file in folder_path.rglob("*") if file.is_file()]
        self.uploaded = {str(file.relative_to(folder_path)): file.read_bytes() for file in files}

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.calls]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    api = FakeApi()
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_mine")
    monkeypatch.delenv(deploy.SPACE_TOKEN, raising=False)
    return api


@pytest.fixture
def card(tmp_path: Path) -> Path:
    path = tmp_path / "card.yaml"
    path.write_text(CARD)
    return path


def front_matter(api: FakeApi) -> dict[str, Any]:
    return dict(yaml.safe_load(api.uploaded["README.md"].decode().split("---\n")[1]))


def test_the_pocket_pool_on_a_new_space(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "me/demo", "--private"]) == 0
    assert api.names == ["create_repo", "add_space_variable", "upload_folder"]
    (_, create, named), (_, variable, _), (_, _, upload) = api.calls
    assert create == ("me/demo",) and named == {
        "repo_type": "space",
        "space_sdk": "gradio",
        "space_hardware": "cpu-basic",
        "private": True,
    }
    assert variable == ("me/demo", "MULTIDRAFT_POOL", "pocket")
    assert (upload["repo_id"], upload["repo_type"]) == ("me/demo", "space")
    files = api.uploaded
    assert {"app.py", "requirements.txt", "drafters/pocket/target/config.json", "storage/sync.py"} <= set(files)
    assert not [name for name in files if "__pycache__" in name or ".db" in name or name.startswith(("tests", "."))]
    assert max(map(len, files.values())) < 10 * 10**6, "larger files need LFS"
    assert "preload_from_hub" not in front_matter(api) and front_matter(api)["sdk"] == "gradio"
    assert "huggingface.co/spaces/me/demo" in capsys.readouterr().out


def test_an_update_makes_a_space_private_where_that_is_asked_for(api: FakeApi) -> None:
    api.exists = True
    assert main(["deploy", "me/demo", "--update", "--private"]) == 0
    assert api.calls[0] == ("update_repo_settings", ("me/demo",), {"private": True, "repo_type": "space"})


def test_a_card_of_ones_own_with_a_history_on_zerogpu(
    api: FakeApi, card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(deploy.SPACE_TOKEN, "hf_for_the_space")
    command = ["deploy", "me/demo", "--hardware", "zero-a10g", "--pool", str(card), "--dataset", "me/runs"]
    assert main(command) == 0
    assert api.calls[0][:2] == ("create_repo", ("me/runs",)) and api.calls[0][2]["private"] is True
    assert api.calls[1][2]["space_hardware"] == "zero-a10g"
    assert [call[1][1:] for call in api.calls if call[0] == "add_space_variable"] == [
        ("MULTIDRAFT_POOL", "mine"),
        ("MULTIDRAFT_BACKUP", "me/runs"),
    ]
    assert [call[1] for call in api.calls if call[0] == "add_space_secret"] == [
        ("me/demo", "HF_TOKEN", "hf_for_the_space")
    ]
    assert api.uploaded["drafters/pools/mine.yaml"].decode() == CARD
    assert front_matter(api)["suggested_hardware"] == "zero-a10g"
    assert front_matter(api)["preload_from_hub"] == [
        "some/target model.safetensors,config.json,tokenizer.json 0123456789abcdef0123456789abcdef01234567",
        "some/drafter",
    ]
    assert b"bitsandbytes" in api.uploaded["requirements.txt"]


def test_a_card_with_the_name_of_a_bundled_one_does_not_take_its_place(api: FakeApi, card: Path) -> None:
    card.write_text(CARD.replace("name: mine", "name: pocket"))
    assert main(["deploy", "me/demo", "--pool", str(card)]) == 0
    assert b"name: pocket" in api.uploaded["drafters/pools/card.yaml"]
    assert b"pocket/target" in api.uploaded["drafters/pools/pocket.yaml"]


def test_a_head_in_8_bits_needs_no_other_library(api: FakeApi, card: Path) -> None:
    head = "{name: head, kind: eagle, id: some/head, quantization: int8}"
    card.write_text(CARD.replace(", quantization: nf4", "").replace("{name: lookup, kind: pld}", head))
    assert main(["deploy", "me/demo", "--pool", str(card)]) == 0
    assert b"bitsandbytes" not in api.uploaded["requirements.txt"]


def test_what_lies_beside_a_card_goes_along(api: FakeApi, card: Path) -> None:
    router, examples = card.parent / "router", card.parent / "tasks.yml"
    router.mkdir()
    (router / "router.json").write_text("{}")
    (card.parent / "sums").mkdir()
    (card.parent / "sums" / "model.safetensors").write_bytes(b"weights")
    (card.parent / "map.json").write_text("[1]")
    examples.write_text(yaml.safe_dump({"examples": [{"task": "sums", "prompt": "1 + 1"}]}))
    mine = card.rename(card.with_suffix(".yml"))
    drafter = "  - {name: sums, kind: lm, path: sums, token_map: map.json}\n"
    mine.write_text(CARD + drafter + "router: router\nexamples: tasks.yml\n")
    assert main(["deploy", "me/demo", "--pool", str(mine)]) == 0
    files = api.uploaded
    assert files["drafters/pools/router/router.json"] == b"{}"
    assert (files["drafters/pools/sums/model.safetensors"], files["drafters/pools/map.json"]) == (b"weights", b"[1]")
    assert files["drafters/pools/tasks.yml"] == examples.read_bytes()
    assert files["drafters/pools/mine.yaml"] == mine.read_bytes(), "the name by which it is found there"


def test_a_card_may_name_what_every_space_has(api: FakeApi, card: Path) -> None:
    bundled = deploy.ROOT / "drafters" / "pocket" / "target"
    card.write_text(
        CARD.replace("id: some/target, revision: 0123456789abcdef0123456789abcdef01234567", f"path: {bundled}")
    )
    assert main(["deploy", "me/demo", "--pool", str(card)]) == 0
    assert b"target: {path: ../pocket/target}" in api.uploaded["drafters/pools/mine.yaml"]


def test_the_own_token_is_never_given_away(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "me/demo", "--dataset", "me/runs"]) == 0
    assert "add_space_secret" not in api.names and "hf_mine" not in repr(api.calls)
    assert deploy.SPACE_TOKEN in capsys.readouterr().out


def test_a_space_that_exists_is_only_replaced_on_demand(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.exists = True
    assert main(["deploy", "me/demo"]) == 2
    assert "the Space me/demo exists" in capsys.readouterr().err and not api.calls
    assert main(["deploy", "me/demo", "--update", "--hardware", "t4-small"]) == 0
    assert api.names == ["request_space_hardware", "add_space_variable", "upload_folder"]
    assert api.calls[-1][2]["delete_patterns"] == "*"


def test_a_dry_run_sends_nothing(api: FakeApi, card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "me/demo", "--pool", str(card), "--dataset", "me/runs", "--dry-run"]) == 0
    out = capsys.readouterr().out
    for part in (
        "create the Space me/demo (public, cpu-basic)\n",
        "set the variable MULTIDRAFT_BACKUP to me/runs\n",
        "HF_TOKEN is not set: ",
        "- some/drafter\n",
        "MiB",
    ):
        assert part in out
    assert not api.calls


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["demo"], "name it as USER/NAME"),
        ([""], "name it as USER/NAME"),
        (["", "--dry-run"], "name it as USER/NAME"),
        (["me/demo", "--dataset", "runs"], "name it as USER/NAME"),
        (["me/demo", "--hardware", "abacus"], "unknown hardware 'abacus'; one of: cpu-basic"),
        (["me/demo", "--pool", "nonsense"], "unknown pool 'nonsense'"),
    ],
)
def test_bad_arguments_end_before_anything_is_sent(
    api: FakeApi, arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", *arguments]) == 2
    assert why in capsys.readouterr().err and not api.calls


@pytest.mark.parametrize(
    ("router", "why"), [("../router", "outside of its folder"), ("router", "names router, which does not exist")]
)
def test_what_a_card_names_and_cannot_go_along_is_refused(
    api: FakeApi, card: Path, router: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    card.write_text(f"{CARD}router: {router}\n")
    assert main(["deploy", "me/demo", "--pool", str(card)]) == 2
    assert why in capsys.readouterr().err and not api.calls


def test_without_a_token(api: FakeApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert main(["deploy", "me/demo"]) == 2
    assert "hf auth login" in capsys.readouterr().err and not api.calls


@pytest.mark.parametrize(
    ("step", "refusal", "said"),
    [
        (
            "create_repo",
            403,
            "could not create the Space me/demo (public, cpu-basic): the token is not allowed to do this",
        ),
        ("create_repo", 402, "this hardware is not free"),
        ("add_space_variable", 500, "could not set the variable MULTIDRAFT_POOL to pocket: in the Hub's words"),
        ("repo_exists", ConnectionError("no route\nat all"), "the Hub cannot be reached (no route)"),
    ],
)
def test_refusals_are_told_in_one_line(
    api: FakeApi, step: str, refusal: int | Exception, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.refusals[step] = refusal
    assert main(["deploy", "me/demo"]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
