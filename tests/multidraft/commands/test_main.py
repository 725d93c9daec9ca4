"""The command line: what it prints, what it writes, one clear line and status 2 on bad input."""

import json
import subprocess
import sys

import pytest

from multidraft.__main__ import main
from multidraft.commands.options import split_specs
from multidraft.policies import POLICIES
from tests import tiny

PROMPT = tiny.texts(1, 7, 8)[0]


def test_generate_prints_the_answer_and_its_figures(pool_card, capsys):
    assert main(["generate", PROMPT, "--pool", str(pool_card), "--max-new-tokens", "20"]) == 0
    out, err = capsys.readouterr()
    assert out.strip() and "tokens/s" in err and "tokens per round" in err


def test_generate_as_json(pool_card, capsys):
    arguments = ["generate", PROMPT, "--pool", str(pool_card), "--max-new-tokens", "20", "--json"]
    assert main([*arguments, "--policy", "ucb"]) == 0
    ours = json.loads(capsys.readouterr().out)
    assert main([*arguments, "--policy", "autoregressive"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert ours["token_ids"] == plain["token_ids"] and ours["policy"] == "ucb"
    assert sum(len(r["tokens"]) for r in ours["rounds"]) == len(ours["token_ids"])
    assert plain["mean_accepted_tokens"] == 1.0
    assert plain["max_new_tokens"] == 20 and plain["hardware"] and plain["libraries"]["torch"]


def test_pool_prints_costs_and_matrix(pool_card, suite, capsys):
    arguments = ["pool", str(pool_card), "--matrix", "--suite", str(suite), "--max-new-tokens", "12"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert "ms per drafted token" in out and "| drafter | letters |" in out and err.endswith(" prompts\n")
    assert main([*arguments, "--json", "--plain"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert set(content["matrix"]["letters"]) == {"near", "lookup", "far", "alone"}
    assert min(content["plain_tokens_per_second"].values()) > 0
    assert main(["pool", str(pool_card), "--device", "toaster"]) == 2
    assert "toaster" in capsys.readouterr().err


@pytest.fixture
def mats(tmp_path):
    path = tmp_path / "mats.csv"
    path.write_text("drafter,Math,Code\nmath,6.5,2.5\ncode,2.0,7.0\n")
    return path


def test_simulate_reaches_the_mats_of_the_table(mats, capsys):
    arguments = ["simulate", str(mats), "--policies", "fixed:math,fixed:code,ucb", "--tokens", "200-300"]
    assert main([*arguments, "--seeds", "60", "--json"]) == 0
    policies = json.loads(capsys.readouterr().out)["policies"]
    assert policies["fixed:math"]["by_task"] == {
        "Math": pytest.approx(6.5, rel=0.05),
        "Code": pytest.approx(2.5, rel=0.05),
    }
    assert policies["fixed:code"]["by_task"] == {
        "Math": pytest.approx(2.0, rel=0.05),
        "Code": pytest.approx(7.0, rel=0.05),
    }
    assert 5.5 < policies["ucb:reward=be"]["mean_accepted_tokens"] < 6.75


def test_simulate_as_a_table_and_mixed(mats, capsys):
    assert main(["simulate", str(mats), "--seeds", "2", "--mixed"]) == 0
    out, err = capsys.readouterr()
    assert "| policy | mixed | mean MAT | tokens/s |" in out and not err
    assert main(["simulate", str(mats), "--seeds", "2", "--draft-length", "5"]) == 0
    assert "2 of 4 MATs in mats.csv are more than drafts of 5 tokens yield and count as 6" in capsys.readouterr().err
    assert main(["simulate", str(mats), "--seeds", "2", "--draft-length", "1"]) == 0
    assert "3 of 4 MATs in mats.csv are more than drafts of 1 token yield" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        *(["simulate", "mats.csv", *told] for told in (["--drafter-ms", "nan"], ["--target-ms", "inf"])),
        *(
            ["train", *"--target t --data d --out o".split(), f"--{name}", "nan"]
            for name in ("minutes", "lr", "heldout")
        ),
    ],
)
def test_numbers_that_are_none_are_refused_at_once(capsys, arguments):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert f"argument {arguments[-2]}: must be a finite number, got '{arguments[-1]}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        ("drafter,Math\nmath,x\n", [], "row 2, column 'Math': 'x' is not a value of mean accepted tokens"),
        ("drafter,Math\nmath,0.5\n", [], "a number of at least 1"),
        ("drafter,Math\nmath,2\nmath,3\n", [], "row 3: there is a drafter 'math' already"),
        ("drafter,Math\nmath,2,3\n", [], "row 2: 3 cells where the header has 2"),
        ("", [], "needs a header"),
        (None, [], "table.csv cannot be read: No such file or directory\n"),
        ("drafter,Stra\udcdfe\nmath,2\n", [], "is not UTF-8 text"),
        ("drafter,Math\nmath,2\n", ["--tokens", "300-200"], "--tokens must be"),
        ("drafter,Math\nmath,2\n", ["--tokens", "²"], "--tokens must be"),
        ("drafter,Math\nmath,2\n", ["--tokens", "1-1000001"], "--tokens must be a number from 1 to 1,000,000, or a"),
        ("drafter,Math, Math\nmath,2,3\n", [], "row 1: there are two columns 'Math'"),
        ("drafter,Math\nmath,2\n", ["--mixed"], "--mixed needs at least two tasks"),
        ("drafter,Math,Code\nmath,2,3\n", ["--mixed", "--tokens", "1-9"], "at least two tokens"),
        ("drafter,Math\nmath,2\n", ["--draft-length", "65"], "draft_length must be at most 64, got 65"),
        ("drafter,Math\nmath,2\n", ["--seeds", "0"], "--seeds"),
        ("drafter,Math\nmath,2\n", ["--policies", "nonsense"], "unknown policy"),
        ("drafter,Math\nmath,2\n", ["--policies", ""], "no policy is chosen"),
        ("drafter,Math\nmath,2\n", ["--policies", "router"], "'router' needs a router, which has no prompts to read"),
    ],
)
def test_simulate_with_bad_input(tmp_path, capsys, content, arguments, said):
    path = tmp_path / "table.csv"
    if content is not None:
        path.write_text(content, errors="surrogateescape")
    assert main(["simulate", str(path), *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", ""], "empty"),
        (["generate", "a" * 500], "context window"),
        (["generate", "abc", "--policy", "nonsense"], "normal-hedge"),
        (["generate", "abc", "--policy", "fixed:nobody"], "near"),
        (["generate", "abc", "--policy", "router"], "needs a router"),
        (["bench", "pocket", "--policies", "ucb,fixed:nobody"], "near"),
    ],
)
def test_bad_input_is_one_line_and_status_2(pool_card, capsys, arguments, said):
    assert main([*arguments, "--pool", str(pool_card)]) == 2
    out, err = capsys.readouterr()
    lines = err.strip().splitlines()
    assert said in lines[-1] and lines[-1].startswith("multidraft: ") and "Traceback" not in err and not out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", "abc", "--temperature", "-1"], "temperature"),
        (["generate", "abc", "--max-new-tokens", "0"], "max_new_tokens"),
        (["generate", "abc", "--seed", "-1"], "the seed must be a whole number from 0 to 2^63 - 1, got -1"),
        (["generate", "abc", "--policy", "nosuch"], "unknown policy 'nosuch'"),
        (["generate", "abc", "--policy", "fixed:math,x=1"], "there is no setting 'x'"),
        (["generate", "abc", "--policy", "oracle"], "cannot be played live"),
        (["generate", "abc", "--top-k", "-1"], "top_k"),
        (["generate", "abc", "--policy", "ucb:beta=-1"], "beta must be a number from 0 to 100"),
        (["pool", "--matrix", "--draft-length", "0"], "draft_length"),
        (["pool", "--matrix", "--limit", "0"], "--limit"),
        *((["pool", *given], "give --matrix too") for given in (["--suite", "pocket"], ["--limit", "2"])),
        *((["pool", *two], f"{two[0]} needs the pool") for two in (["--matrix", "--estimate"], ["--plain", "--list"])),
        (["bench", "no-such-suite"], "no-such-suite"),
        (["bench", "pokcet"], "no suite or file 'pokcet'; did you mean pocket? bundled suites: "),
        (["bench", "pocket", "--limit", "0"], "--limit"),
        (["bench", "pocket", "--repeat", "0"], "--repeat"),
        (["bench", "pocket", "--top-p", "2"], "top_p"),
        (["bench", "pocket", "--draft-length", "0"], "draft_length"),
        (["bench", "pocket", "--seed", "-1"], "the seed must be a whole number from 0 to 2^63 - 1, got -1"),
        (["bench", "pocket", "--policies", "ucb:beta=x"], "beta"),
        (["bench", "pocket", "--policies", "ucb,nosuch"], "unknown policy 'nosuch'"),
        (["bench", "pocket", "--policies", " , "], "no policy is chosen; choose at least one"),
        (["bench", "pocket", "--out", "no/such/folder/report.json"], "--out: the folder"),
        (["bench", "pocket", "--db", "no/such/folder/runs.db"], "The folder"),
        (["bench", "pocket", "--db", __file__], "damaged or not a SQLite database"),
        (["replay", "--db", __file__], "it was left as it is: move it away, or name another file (--db, "),
        (["replay", "--db", "none.db", "--policies", ""], "no policy is chosen"),
    ],
)
def test_what_needs_no_pool_is_refused_before_one_is_loaded(monkeypatch, capsys, arguments, said):
    def loaded(*_, **__):
        pytest.fail("the pool was loaded")

    monkeypatch.setattr("drafters.pool.load_pool", loaded)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert said in err and err.startswith("multidraft: ") and len(err.splitlines()) == 1 and not out


def test_an_unknown_pool_names_the_bundled_ones(capsys):
    assert main(["pool", "nonsense"]) == 2
    assert "pocket" in capsys.readouterr().err


def test_bad_arguments_end_with_status_2(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["generate"])
    assert stop.value.code == 2 and "prompt" in capsys.readouterr().err


def test_settings_stay_with_their_spec():
    assert split_specs("ucb:beta=0.1,reward=be, normal-hedge,,fixed:math") == [
        "ucb:beta=0.1,reward=be",
        "normal-hedge",
        "fixed:math",
    ]


def test_policies_are_listed_with_settings_and_sources(capsys):
    assert main(["policies"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == sorted(POLICIES)
    assert "| ucb | UCB | reward=bd, beta=0.01, start=cold | MetaSD Alg. 2" in "\n".join(lines)
    assert "| fixed | One drafter | drafter | Speculative decoding" in "\n".join(lines)
    assert main(["policies", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.isascii() and {row["policy"] for row in json.loads(out)} == set(POLICIES)  # valid on any terminal


def test_a_damaged_history_and_a_report_that_cannot_be_written(pool_card, tmp_path, capsys):
    damaged = tmp_path / "x.db"
    damaged.write_bytes(bytes(range(256)) * 8)
    assert main(["replay", "--db", str(damaged)]) == 2
    assert "damaged or not a SQLite database" in capsys.readouterr().err
    assert main(["bench", "pocket", "--pool", str(pool_card), "--out", str(tmp_path)]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_what_needs_no_model_does_not_wait_for_transformers() -> None:
    """Its import takes two thirds of the time of such a command."""
    commands = ("export", "import_files", "restore", "trackio", "policies", "simulate")
    code = "import sys; import multidraft.__main__, {}; sys.exit('transformers' in sys.modules)"
    code = code.format(", ".join(f"multidraft.commands.{command}" for command in commands))
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_output_that_cannot_be_written_gets_no_traceback() -> None:
    command = [sys.executable, "-m", "multidraft", "policies"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout and process.stderr
    process.stdout.close()  # as head(1) does
    assert process.stderr.read() == b"" and process.wait(60) == 1
    with open("/dev/full", "w") as full:
        told = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert told.returncode == 2 and told.stderr == b"multidraft: cannot write all output: No space left on device\n"


def test_an_unknown_option_is_told_with_the_usage_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["policies", "--jsn"])
    told = capsys.readouterr().err
    assert told.startswith("usage: python -m multidraft policies") and "unrecognized arguments: --jsn" in told
