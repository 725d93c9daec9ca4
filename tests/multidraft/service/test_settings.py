import ast
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from drafters.errors import UserError
from multidraft.__main__ import main
from multidraft.service import settings
from multidraft.service.limits import PUBLIC, Limits
from multidraft.service.settings import FRAMES, THIS_MACHINE, Settings, read_settings

ROOT = Path(__file__).parents[3]


def test_without_variables_all_is_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULTIDRAFT_POOL", "another")
    assert read_settings({}) == read_settings({"PATH": "/bin", "MULTIDRAFT_POOL": " "}) == Settings()
    assert read_settings().pool == "another"


def test_each_variable_has_its_setting(tmp_path: Path) -> None:
    assert read_settings(
        {
            "MULTIDRAFT_POOL": "my.yaml",
            "MULTIDRAFT_POOLS": str(tmp_path),
            "MULTIDRAFT_DB": "/x/mine.db",
            "MULTIDRAFT_BACKUP": "me/runs",
            "MULTIDRAFT_BACKUP_FOLDER": "/y",
            "MULTIDRAFT_BACKUP_MINUTES": "2.5",
            "MULTIDRAFT_API_KEY": "secret",
            "MULTIDRAFT_CACHE_MEMORY": "1.5",
            "MULTIDRAFT_HOSTS": "demo.example, 10.0.0.1",
            "MULTIDRAFT_FRAMES": "https://blog.example",
            "MULTIDRAFT_OPERATOR_KEY": "mine",
            "MULTIDRAFT_QUEUE": "12",
            "MULTIDRAFT_SHARE": "0.5",
            "MULTIDRAFT_PROMPT_TOKENS": "500",
            "MULTIDRAFT_NEW_TOKENS": "100",
            "MULTIDRAFT_BATCH_RUNS": "50",
            "MULTIDRAFT_RUN_SECONDS": "2.5",
            "MULTIDRAFT_BATCH_SECONDS": "60",
            "MULTIDRAFT_STORED_GB": "0.5",
            "GRADIO_SERVER_NAME": "0.0.0.0",
            "GRADIO_SERVER_PORT": "7861",
        }
    ) == Settings(
        *("my.yaml", tmp_path, False, False, Path("/x/mine.db"), "0.0.0.0", 7861, Path("/y"), "me/runs", 2.5, "secret"),
        *(3 << 29, Path("/x/learnt"), ("demo.example", "10.0.0.1"), ("https://blog.example",), "mine"),
        Limits(12, 0.5, 500, 100, 50, 2.5, 60.0, 1 << 29),
    )
    assert read_settings({"MULTIDRAFT_LEARNT": "/z"}).learnt == Path("/z")
    assert read_settings({"MULTIDRAFT_LEARNT": "Off"}).learnt is None
    assert read_settings({"SPACES_ZERO_GPU": "1"}).learnt is None
    assert "secret" not in repr(Settings(api_key="secret", operator_key="secret"))


@pytest.mark.parametrize(
    ("variables", "hosts", "frames", "limits"),
    [
        ({}, THIS_MACHINE, (), Limits()),
        ({"GRADIO_SERVER_NAME": "127.0.0.5"}, THIS_MACHINE, (), Limits()),
        ({"GRADIO_SERVER_NAME": "0.0.0.0"}, ("*",), (), PUBLIC),
        ({"SPACE_ID": "a/b"}, ("*",), FRAMES, PUBLIC),
        ({"SPACE_ID": "a/b", "MULTIDRAFT_SHARE": "1"}, ("*",), FRAMES, replace(PUBLIC, share=1.0)),
    ],
)
def test_what_others_can_reach_has_limits(variables, hosts, frames, limits) -> None:
    read = read_settings(variables)
    assert (read.hosts, read.frames, read.limits) == (hosts, frames, limits)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GRADIO_SERVER_NAME", "192.0.2.1"),
        ("GRADIO_SERVER_PORT", "abc"),
        ("GRADIO_SERVER_PORT", "0"),
        ("GRADIO_SERVER_PORT", "-1"),
        ("GRADIO_SERVER_PORT", "70000"),
        ("MULTIDRAFT_SWITCH", "maybe"),
        ("MULTIDRAFT_IMPORT", "1"),
        ("MULTIDRAFT_POOLS", "/no/such/folder"),
        ("MULTIDRAFT_BACKUP", "runs"),
        ("MULTIDRAFT_BACKUP", "https://huggingface.co/me/runs"),
        ("MULTIDRAFT_BACKUP_MINUTES", "often"),
        ("MULTIDRAFT_BACKUP_MINUTES", "0"),
        ("MULTIDRAFT_BACKUP_MINUTES", "nan"),
        ("MULTIDRAFT_BACKUP_MINUTES", "inf"),
        ("MULTIDRAFT_HOSTS", "a.example, http://b.example"),
        ("MULTIDRAFT_HOSTS", "a.example:7860"),
        ("MULTIDRAFT_CACHE_MEMORY", "0"),
        ("MULTIDRAFT_CACHE_MEMORY", "4 GB"),
        ("MULTIDRAFT_SHARE", "1.5"),
        ("MULTIDRAFT_QUEUE", "2.5"),
        ("MULTIDRAFT_QUEUE", "0"),
        ("MULTIDRAFT_RUN_SECONDS", "nan"),
        ("MULTIDRAFT_RUN_SECONDS", "inf"),
    ],
)
def test_a_bad_value_is_named(name: str, value: str) -> None:
    with pytest.raises(UserError, match=f"{name} must be .*{value}"):
        read_settings({name: value})


@pytest.mark.parametrize(
    ("variables", "may"),
    [
        ({}, True),
        ({"GRADIO_SERVER_NAME": "localhost"}, True),
        ({"GRADIO_SERVER_NAME": "0.0.0.0"}, False),
        ({"SPACE_ID": "a/b"}, False),
        ({"SPACE_ID": "a/b", "GRADIO_SERVER_NAME": "0.0.0.0", "MULTIDRAFT_SWITCH": "on"}, True),
        ({"MULTIDRAFT_SWITCH": "OFF"}, False),
        ({"SPACE_ID": "a/b", "MULTIDRAFT_SWITCH": "on", "SPACES_ZERO_GPU": "1"}, False),
    ],
)
def test_who_may_switch(variables: dict[str, str], may: bool) -> None:
    imports = {name.replace("SWITCH", "IMPORT"): value for name, value in variables.items() if "ZERO" not in name}
    assert read_settings(variables).may_switch is may
    assert read_settings(imports).may_import is (may or "SPACES_ZERO_GPU" in variables)


def test_on_a_space_the_history_leaves_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "VOLUME", tmp_path / "no volume")
    space = {"SPACE_ID": "me/demo"}
    assert read_settings(space).db.parent == Path.home() and read_settings(space).backup_folder is None
    monkeypatch.setattr(settings, "VOLUME", tmp_path)
    assert read_settings(space).backup_folder == tmp_path / "multidraft"
    assert read_settings({**space, "MULTIDRAFT_BACKUP_FOLDER": "/y"}).backup_folder == Path("/y")
    assert read_settings({}).backup_folder is None


def test_every_variable_is_documented() -> None:
    operations = (ROOT / "docs" / "operations.md").read_text()
    for limit in ("QUEUE", "SHARE", "PROMPT_TOKENS", "NEW_TOKENS", "BATCH_RUNS", "RUN_SECONDS", "BATCH_SECONDS"):
        assert f"| `MULTIDRAFT_{limit}` |" in operations
    readme = (ROOT / "README.md").read_text() + operations
    for field in fields(Settings):
        documented = str(Settings.__doc__).partition(f"{field.name}: ``")[2].partition("``")[0]
        assert documented.isupper() and f"`{documented}`" in readme, field.name


def test_a_bad_port_is_told_in_one_line_before_gradio_breaks_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Gradio reads it when it is imported: by the page and the servers alone (a contract of imports says so), which the
    command line imports only then."""
    monkeypatch.setenv("GRADIO_SERVER_PORT", "abc")
    monkeypatch.setitem(sys.modules, "multidraft.ui.app", None)
    assert main(["demo"]) == 2
    told = "multidraft: GRADIO_SERVER_PORT must be a number from 1 to 65535, got 'abc'\n"
    assert capsys.readouterr() == ("", told)
    for file in (ROOT / "app.py", *ROOT.glob("multidraft/*.py"), *ROOT.glob("multidraft/commands/*.py")):
        for node in ast.parse(file.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith(("gradio", "multidraft.ui", "multidraft.serving")) for name in names), file
