"""Files of prompts: every form, and files as people have them."""

import json
import tracemalloc
from pathlib import Path

import pytest

from drafters.errors import SuiteError
from multidraft.bench import suites
from multidraft.bench.suites import LineProblem, SuiteItem, load_suite, suite_names

SPEC_BENCH = Path(__file__).parents[4] / "shared" / "data" / "spec_bench.jsonl"


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def load(tmp_path, name, content):
    return load_suite(write(tmp_path, name, content))


# The forms.


def test_spec_bench_lines(tmp_path):
    lines = [
        {"question_id": 81, "category": "writing", "turns": ["First.", "Second."], "reference": ["x"]},
        {"question_id": "q2", "category": "math", "turns": ["Only."]},
    ]
    suite = load(tmp_path, "mine.jsonl", "\n".join(map(json.dumps, lines)))
    assert suite.name == "mine" and suite.problems == []
    assert suite.items == [SuiteItem("81", "First.", "writing"), SuiteItem("q2", "Only.", "math")]


def test_prompt_lines(tmp_path):
    lines = ['{"prompt": "One", "task": "t"}', "", '{"prompt": "Two", "id": 7}', '{"prompt": "Three"}']
    suite = load(tmp_path, "a.jsonl", "\n".join(lines))
    assert suite.items == [SuiteItem("1", "One", "t"), SuiteItem("7", "Two"), SuiteItem("4", "Three")]


@pytest.mark.parametrize("suffix", [".jsonl", ".JSONL", ".ndjson"])
def test_json_suffixes(tmp_path, suffix):
    assert load(tmp_path, "a" + suffix, '{"prompt": "One"}').items == [SuiteItem("1", "One")]


def test_csv_with_quotes_commas_and_line_breaks(tmp_path):
    content = 'ID,Task,prompt\r\n1,sql,"List ""all"", please"\r\n2,,"two\r\nlines"\r\n\r\n3,math,1+1\r\n'
    assert load(tmp_path, "a.csv", content).items == [
        SuiteItem("1", 'List "all", please', "sql"),
        SuiteItem("2", "two\r\nlines"),
        SuiteItem("3", "1+1", "math"),
    ]


@pytest.mark.parametrize("said", ["", "sep=;\r\n", "\ufeffSEP=;\n"])
def test_csv_with_turns_between_semicolons(tmp_path, said):
    content = said + 'Question_ID;"category ";"Turns";"a, b"\n5;qa;"[""First"", ""Second""]"\n6;qa;Two\n7;qa;"[bad"\n'
    suite = load(tmp_path, "a.csv", content)
    assert suite.items == [SuiteItem("5", "First", "qa"), SuiteItem("6", "Two", "qa")]
    assert suite.problems == [LineProblem(5 if said else 4, "'turns' is not a valid JSON list")]


@pytest.mark.parametrize("name", ["a.txt", "a.md", "prompts"])
def test_plain_lines(tmp_path, name):
    suite = load(tmp_path, name, "First\r\n\r\n  Second  \nThird")
    assert suite.items == [SuiteItem("1", "First"), SuiteItem("3", "Second"), SuiteItem("4", "Third")]


def test_a_byte_order_mark_is_no_text(tmp_path):
    bom = b"\xef\xbb\xbf"
    assert load(tmp_path, "a.txt", bom + b"First").items[0].prompt == "First"
    assert load(tmp_path, "a.jsonl", bom + b'{"prompt": "First"}').items[0].prompt == "First"
    assert load(tmp_path, "a.csv", bom + b"prompt\nFirst").items[0].prompt == "First"


def test_windows_line_ends_in_json_lines(tmp_path):
    suite = load(tmp_path, "a.jsonl", '{"prompt": "a\\r\\nb"}\r\n{"prompt": "c"}\r\n')
    assert [item.prompt for item in suite.items] == ["a\r\nb", "c"]


def test_unicode_line_separators_do_not_split_prompts(tmp_path):
    text = "one\u2028still\u0085one\x0cstill"
    assert load(tmp_path, "a.txt", text).items[0].prompt == text
    assert load(tmp_path, "a.jsonl", json.dumps({"prompt": text}, ensure_ascii=False)).items[0].prompt == text


# Bad lines are reported with their number, the others kept.


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not valid JSON"),
        ("nonsense", "not valid JSON"),
        ('["a"]', "expected a JSON object"),
        ("42", "expected a JSON object"),
        ("null", "expected a JSON object"),
        ("{}", "needs 'prompt'"),
        ('{"prompt": 5}', "'prompt' is a number; it must be text"),
        ('{"prompt": null}', "needs 'prompt'"),
        ('{"turns": []}', "'turns' is empty"),
        ('{"turns": [5]}', "the first of 'turns' is a number; it must be text"),
        ('{"turns": {"a": 1}}', "'turns' is an object; it must be text"),
        ('{"prompt": "  "}', "the prompt is empty"),
        ('{"turns": [""]}', "the prompt is empty"),
        ("[" * 100_000, "not valid JSON"),
        ('{"prompt": "x", "id": ' + "9" * 5000 + "}", "not valid JSON (a number with too many digits)"),
        ('{"prompt": "x \\ud83d y"}', "half of a character"),
    ],
    ids=lambda value: value[:24],
)
def test_a_bad_json_line_is_reported(tmp_path, line, message):
    suite = load(tmp_path, "a.jsonl", f'{{"prompt": "good"}}\n\n{line}\n{{"prompt": "good too"}}\n')
    assert [item.prompt for item in suite.items] == ["good", "good too"]
    (problem,) = suite.problems
    assert str(problem).startswith("line 3: ") and message in problem.message


def test_a_bad_csv_row_is_reported(tmp_path):
    suite = load(tmp_path, "a.csv", 'prompt,task\ngood,t\n,t\n"x"y,t\nalso good,t\n')
    assert [item.prompt for item in suite.items] == ["good", "also good"]
    assert [problem.line for problem in suite.problems] == [3, 4]
    assert suite.problems[0].message == "the prompt is empty"
    assert "not valid CSV" in suite.problems[1].message


def test_an_unclosed_quote_in_csv_ends_the_file_not_the_program(tmp_path):
    suite = load(tmp_path, "a.csv", 'prompt\ngood\n"never closed\nand on\n')
    assert [item.prompt for item in suite.items] == ["good"]
    assert len(suite.problems) == 1 and "CSV" in suite.problems[0].message


def test_csv_rows_of_unlike_length(tmp_path):
    suite = load(tmp_path, "a.csv", "prompt,task\nonly prompt\nmore,t,than,asked\n")
    assert suite.items == [SuiteItem("2", "only prompt"), SuiteItem("3", "more", "t")]


# Files that hold nothing usable.


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv"])
@pytest.mark.parametrize("content", [b"", b"\n\n  \n", b"\xef\xbb\xbf"])
def test_an_empty_file(tmp_path, name, content):
    with pytest.raises(SuiteError, match=rf"{name} is empty\. It needs .*prompt"):
        load(tmp_path, name, content)


def test_what_is_no_text_in_utf_8_is_called_so(tmp_path):
    for content in (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", bytes(range(256)), "{}".encode("utf-16-le")):
        with pytest.raises(SuiteError, match=r"pic\.jsonl is a picture or other binary file, or text in UTF-16"):
            load(tmp_path, "pic.jsonl", content)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "{}\n[]\n", "holds no prompt; line 1: needs 'prompt'"),
        ("a.jsonl", '{"question": 1, "kind": 2}\n', "OpenAI's 'messages'; it has: question, kind"),
        ("a.jsonl", '{"promt": "hi"}\n', r"'messages'; did you mean prompt\? it has: promt"),
        ("a.csv", "id,promt\n1,hi\n", r"\(or 'turns'\); did you mean prompt\? it has: id,"),
        ("a.csv", "question,answer\n1,2\n", "line 1: the header needs a column 'prompt'.*question, answer"),
        ("a.csv", '"que"stion,prompt\n1,2\n', "line 1: the header is not valid CSV"),
    ],
)
def test_a_file_without_a_prompt_says_why(tmp_path, name, content, message):
    with pytest.raises(SuiteError, match=message):
        load(tmp_path, name, content)


@pytest.mark.parametrize("content", ["naïve".encode("latin-1"), "text".encode("utf-16"), bytes(range(128, 256))])
def test_a_file_that_is_no_utf_8(tmp_path, content):
    with pytest.raises(SuiteError, match=r"a\.txt is not UTF-8 text \(byte \d+\); save it as UTF-8"):
        load(tmp_path, "a.txt", content)


def test_a_huge_file_is_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "huge.jsonl"
    with path.open("wb") as file:
        file.truncate(suites.MAX_BYTES + 1)  # sparse: takes no space
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("read"))
    with pytest.raises(SuiteError, match=r"huge\.jsonl has 20 MB; a suite may have 20 MB"):
        load_suite(path)


def test_too_many_prompts_are_cut_and_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(suites, "MAX_ITEMS", 3)
    said, unread = "prompt 4: only the first 3 prompts are used", ", and the end was not read: a.txt has more than 60"
    for text, end, more in (("abcdef", "", 2), ("g" * 66, unread, 56)):
        suite = load(tmp_path, "a.txt", "\n".join(text))
        assert [item.prompt for item in suite.items] == [*text[:3]] and suite.more_problems == more
        assert suite.left_out[0].startswith(said + end)


# Files that would take much time or memory.


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_reading_ends_after_many_bad_lines_of_which_few_are_shown(tmp_path, name):
    suite = load(tmp_path, name, '{"prompt": "good"}\n' + "x\n" * 100_000 + '{"prompt": "beyond"}\n')
    assert [item.prompt for item in suite.items] == ["good"]
    assert [problem.line for problem in suite.problems] == [*range(2, 22), 1001]
    assert suite.problems[-1].message == "reading ended here, after 1,000 without a prompt"
    assert suite.more_problems == 980


def test_no_more_is_held_of_a_list_than_is_shown(tmp_path):
    suite = load(tmp_path, "a.json", '[{"prompt": "good"}, ' + "{}, " * 2_000 + "{}]")
    assert len(suite.items) == 1 and len(suite.problems) == 21 and suite.more_problems == 980
    assert str(suite.problems[-1]).startswith("entry 1001: reading ended here")


def test_bad_files_take_little_memory(tmp_path):
    paths = [
        write(tmp_path, "lines.jsonl", "x\n" * 2_000_000),
        write(tmp_path, "list.json", "[" + "{}," * 1_300_000 + "{}]"),
        write(tmp_path, "table.csv", "prompt\n" + '""\n' * 1_300_000),
    ]
    for path in paths:
        tracemalloc.start()
        try:
            with pytest.raises(SuiteError, match="holds no prompt"):
                load_suite(path)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 16 * 2**20, path


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.txt", "a.json"])
def test_a_file_of_too_many_lines_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(suites, "MAX_ITEMS", 3)
    with pytest.raises(SuiteError, match=rf"{name} has more than 60 lines; split the file"):
        load(tmp_path, name, "prompt" + "\n" * 100)


@pytest.mark.parametrize(
    ("name", "line"),
    [("a.jsonl", '{{"prompt": "{}"}}'), ("a.csv", '1,"{}"'), ("a.txt", "{}"), ("b.json", '{{"prompt": "{}"}}')],
)
@pytest.mark.parametrize("text", ["x" * 100, "é" * 50, "x" * 1_000])
def test_an_overlong_line_is_reported_and_the_others_are_read(tmp_path, monkeypatch, name, line, text):
    monkeypatch.setattr(suites, "MAX_ENTRY", 64)
    start = ["id,prompt"] if name == "a.csv" else [line.format("first")]
    lines = [*start, line.format("one"), line.format(text), line.format("two")]
    suite = load(tmp_path, name, "\n".join(lines))
    assert [item.prompt for item in suite.items][-2:] == ["one", "two"]
    assert [(p.line, p.message) for p in suite.problems] in (
        [(3, "longer than 1 MB")],
        [(3, "not valid CSV (longer than 1 MB)")],
    )


def test_a_long_list_is_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(suites, "MAX_ENTRY", 256)
    rows = [{"prompt": "x" * (n % 40), "id": n} for n in range(1, 200)]
    for text in (json.dumps(rows), json.dumps(rows, indent=20), " " * 999 + json.dumps(rows)):
        suite = load(tmp_path, "a.json", text)
        empty = [n for n in range(1, 200) if n % 40 == 0]
        assert [item.id for item in suite.items] == [str(n) for n in range(1, 200) if n not in empty]
        assert [problem.line for problem in suite.problems] == empty


def test_an_overlong_entry_of_a_list_is_reported_and_the_others_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(suites, "MAX_ENTRY", 64)
    suite = load(tmp_path, "a.json", json.dumps([{"prompt": text} for text in ("one", "x" * 100, "two")]))
    assert [item.prompt for item in suite.items] == ["one", "two"]
    assert [str(p) for p in suite.problems] == ["entry 2: longer than 1 MB"]


def test_a_broken_list_says_where(tmp_path):
    suite = load(tmp_path, "a.json", '[{"prompt": "one"},\n{"prompt": "two"},\n{"prompt": oops}, {"prompt": "four"}]')
    assert [item.prompt for item in suite.items] == ["one", "two"]
    assert [str(p) for p in suite.problems] == ["entry 3: not valid JSON (Expecting value); the rest is not read"]


def test_a_single_object_may_have_many_lines(tmp_path):
    assert load(tmp_path, "a.json", json.dumps({"prompt": "one"}, indent=2)).items == [SuiteItem("1", "one")]


@pytest.mark.parametrize("field", ["id", "task"])
def test_an_overlong_name_is_reported(tmp_path, field):
    rows = [{"prompt": "one", field: "x" * 200}, {"prompt": "two", field: "x" * 201}]
    suite = load(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert [str(p) for p in suite.problems] == ["line 2: the id or the task has more than 200 characters"]


def test_a_json_list_is_read_entry_by_entry(tmp_path):
    rows = [{"prompt": "one", "task": "a"}, {"task": "b"}, 7, {"turns": ["two", "three"], "question_id": 9}]
    suite = load(tmp_path, "a.json", json.dumps(rows, indent=2))
    assert suite.items == [SuiteItem("1", "one", "a"), SuiteItem("9", "two", "")]
    assert [str(p)[:8] for p in suite.problems] == ["entry 2:", "entry 3:"]


def test_json_lines_are_read_under_the_name_json_too(tmp_path):
    suite = load(tmp_path, "a.json", '{"prompt": "one"}\n{"prompt": \n{"prompt": "two"}')
    assert [item.prompt for item in suite.items] == ["one", "two"]
    assert [p.line for p in suite.problems] == [2]


@pytest.mark.parametrize("name", ["no-such", "no/such.jsonl", "", "x" * 5000, "nul\0name", "../suites", suites.BUNDLED])
def test_an_unknown_suite(name):
    with pytest.raises(SuiteError, match=r"no suite or file .*bundled suites: "):
        load_suite(name)


@pytest.mark.parametrize("name", suite_names())
def test_bundled_suites_are_sound(name):
    suite = load_suite(name)
    assert suite.name == name and suite.problems == []
    assert len({item.id for item in suite.items}) == len(suite.items)
    assert all(item.task for item in suite.items)


def test_the_published_spec_bench_file():
    if not SPEC_BENCH.exists():
        pytest.skip(f"{SPEC_BENCH.name} is not beside the repository")
    suite = load_suite(SPEC_BENCH)
    lines = [json.loads(line) for line in SPEC_BENCH.read_text(encoding="utf-8").splitlines()]
    assert suite.problems == []
    assert [item.prompt for item in suite.items] == [line["turns"][0] for line in lines]
    assert len(suite.items) == 480
    assert {"translation", "summarization", "qa", "math_reasoning", "rag"} <= {item.task for item in suite.items}


def test_openai_messages_are_prompts(tmp_path: Path) -> None:
    user = {"role": "user", "content": [{"type": "text", "text": "Add "}, {"type": "text", "text": "2 and 3"}]}
    system = {"role": "system", "content": "Be brief."}
    lines: list[dict] = [
        {"messages": [user, {"role": "assistant", "content": "5"}, {"role": "user", "content": "And 4?"}]},
        {"custom_id": "a", "body": {"model": "m", "messages": [system, user]}, "task": "sums"},
        {"messages": [system]},
        {"messages": "hello"},
        {"messages": [{"role": "user", "content": None}]},
    ]
    path = tmp_path / "talks.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    suite = load_suite(path)
    assert [(item.id, item.prompt, item.task) for item in suite.items] == [
        ("1", "Add 2 and 3", ""),
        ("a", "Be brief.\n\nAdd 2 and 3", "sums"),
    ]
    none, *bad = [problem.message for problem in suite.problems]
    assert "none of the role 'user'" in none and all("'role' and 'content'" in message for message in bad)
