"""Cards: what is wrong is said with file, field and what is expected."""

import pytest
import yaml

from drafters.card import POOLS, Card, find_card, load_card, pool_names
from drafters.errors import PoolError

GOOD = {
    "name": "mine",
    "title": "My pool",
    "target": {"path": "target"},
    "drafters": [{"name": "math", "kind": "lm", "path": "math"}, {"name": "lookup", "kind": "pld"}],
}


def write(tmp_path, content):
    path = tmp_path / "card.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def test_a_card_and_its_defaults(tmp_path):
    path = write(tmp_path, GOOD)
    card, text = load_card(path)
    assert (card.name, card.dtype, card.device, card.draft_length, card.stop) == ("mine", "float32", "auto", 6, [])
    assert [d.name for d in card.drafters] == ["math", "lookup"]
    assert card.drafters[0].source.path == "math"
    assert text == path.read_text()


def test_examples_of_another_card(tmp_path):
    examples = [{"task": "t", "prompt": "p"}]
    (tmp_path / "other.yaml").write_text(yaml.safe_dump({**GOOD, "examples": examples}))
    card, _ = load_card(write(tmp_path, {**GOOD, "examples": "other.yaml"}))
    assert [example.model_dump() for example in card.examples] == examples
    with pytest.raises(PoolError, match=r"takes its examples from card\.yaml, which has none of its own"):
        load_card(write(tmp_path, {**GOOD, "examples": "card.yaml"}))
    with pytest.raises(PoolError, match=r"from 'none\.yaml', which is neither .*; bundled pools: .*pocket"):
        load_card(write(tmp_path, {**GOOD, "examples": "none.yaml"}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": None}, "name: "),
        ({"target": None}, "target: "),
        ({"target": {}}, "target: give either path"),
        ({"target": {"path": "a", "id": "b/c"}}, "target: give either path"),
        ({"target": {"path": "a", "trust_remote_code": True}}, r"target\.trust_remote_code: "),
        ({"drafters": []}, "drafters is empty; list at least one"),
        ({"drafters": ["pld"]}, r"drafters\.0: a drafter is a mapping with at least name and kind"),
        ({"drafters": [{"name": "Has Space", "kind": "pld"}]}, r"drafters\.0\.name: "),
        ({"drafters": [{"name": "a,b", "kind": "pld"}]}, r"drafters\.0\.name: "),
        ({"drafters": [{"name": "a", "kind": "pld"}] * 2}, "drafter names must be unique; twice: a"),
        ({"drafters": [{"name": "target", "kind": "pld"}]}, "no drafter may be called 'target'"),
        ({"dtype": "int3"}, "dtype: .*'float32', 'bfloat16' or 'float16'"),
        ({"draft_length": 0}, "draft_length: "),
        ({"draft_length": 65}, "draft_length: "),
        ({"draft_length": "many"}, "draft_length: "),
        ({"drafer": []}, r"drafer: no such setting; did you mean drafters\?"),
        ({"target": {"path": "a", "quantisation": "nf4"}}, r"target\.quantisation: .* did you mean quantization\?"),
        ({"target": {"id": "a/b", "revision": 1234567}}, r"target\.revision: 1234567 is no commit; put it in quotes"),
        ({"quantization": "nf4"}, "quantization: no such setting; it belongs to the target or a drafter"),
        ({"target": {"path": "a", "draft_length": 4}}, "target.draft_length: .* it belongs to the card itself"),
        (
            {"target": {"path": "a", "revision": "abc"}},
            "target: revision is a commit of a Hub repository; without an id",
        ),
        ({"context_window": 1}, "context_window: "),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs cannot set messages"),
        (
            {"chat_template_kwargs": "thinking"},
            "chat_template_kwargs: must be a mapping, got 'thinking'",
        ),
        ({"examples": [{"task": "t"}]}, r"examples\.0\.prompt: "),
    ],
)
def test_an_invalid_card_is_refused_with_file_and_field(tmp_path, change, message):
    content = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    path = write(tmp_path, content)
    with pytest.raises(PoolError, match=f"{path} is not valid: .*{message}"):
        load_card(path)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"kind": "lm"}, r"drafters\.0: give either path .* or id .*\(drafter 'm'\)"),
        ({"kind": "lm", "path": "a", "id": "b/c"}, r"drafters\.0: give either path"),
        ({"kind": "pld", "path": "a"}, r"a drafter of kind pld has no weights"),
        ({"kind": "suffix", "path": "a"}, r"a drafter of kind suffix has no weights"),
        (
            {"kind": "rest"},
            r"drafters\.0\.path: a drafter of kind rest needs path: the path of a datastore, .*\(drafter 'm'\)",
        ),
        (
            {"kind": "rest", "path": "a", "id": "b/c"},
            r"drafters\.0\.id: a drafter of kind rest is read from a local file \(path\); it takes no id",
        ),
        ({"kind": "suffix", "nodes": 0}, r"drafters\.0\.nodes: "),
        ({"kind": "pld", "nodes": 8}, r"nodes is for drafters of kind bpd, eagle, medusa, rest or suffix, not pld"),
        ({"kind": "rest", "path": "a", "past": 9}, r"past is for drafters of kind suffix"),
        ({"kind": "magic"}, r"drafters\.0\.kind: .* there are bpd, .*, suffix \(drafter 'm'\)"),
        (
            {"kind": "eagel"},
            r"drafters\.0\.kind: no such kind of drafter as 'eagel'; did you mean eagle\? there are bpd, ",
        ),
        ({}, r"drafters\.0\.kind: "),
        ({"kind": ["pld"]}, r"drafters\.0\.kind: no such kind of drafter as \['pld'\]; "),
        ({"kind": "lm", "path": "a", "windw": 9}, r"drafters\.0\.windw: .* did you mean window"),
        ({"kind": "pld", "dtype": "x"}, r"drafters\.0\.dtype: .* belongs to the card itself"),
        ({"kind": "pld", "zzz": 1}, r"drafters\.0\.zzz: no such setting; there are name, .*\(drafter 'm'\)"),
        (
            {"kind": "lm", "path": "a", "revision": "abc"},
            r"drafters\.0: revision is a commit of a Hub repository; .*\(drafter 'm'\)",
        ),
    ],
)
def test_an_invalid_drafter_is_refused_with_file_and_field(tmp_path, entry, message):
    path = write(tmp_path, {**GOOD, "drafters": [{"name": "m", **entry}]})
    with pytest.raises(PoolError, match=f"{path} is not valid: .*{message}"):
        load_card(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name: " + "[" * 10_000, "cannot read the pool card .*nested too deeply"),
        ("name: " + "9" * 5_000, "cannot read the pool card .*: a number in it has more than 4,300 digits$"),
        ("name: " + "x" * 1_000_001, "has 1,000,007 bytes; a card may have 1,000,000"),
        ("? " + "nonsense" * 10_000 + "\n: 1", "is not valid: .*name: must be given"),
    ],
    ids=lambda value: value[:12],
)
def test_a_monstrous_card_gets_a_short_message(tmp_path, content, message):
    path = tmp_path / "card.yaml"
    path.write_text(content)
    with pytest.raises(PoolError, match=message) as caught:
        load_card(path)
    assert len(str(caught.value)) < 2_010


def test_a_card_whose_list_of_drafters_is_left_empty(tmp_path):
    with pytest.raises(PoolError, match=r"is not valid: drafters is empty; list at least one$"):
        load_card(write(tmp_path, {**GOOD, "drafters": None}))


@pytest.mark.parametrize("content", ["", "just text", "- a\n- b", "42"])
def test_a_card_that_is_no_mapping(tmp_path, content):
    path = write(tmp_path, content)
    with pytest.raises(PoolError, match=f"{path} must be a mapping"):
        load_card(path)


def test_a_card_that_is_no_yaml_or_no_text(tmp_path):
    with pytest.raises(PoolError, match=r"card\.yaml is not valid YAML at line 2, column 1: expected ',' or ']'"):
        load_card(write(tmp_path, "name: [unclosed\n"))
    (tmp_path / "card.yaml").write_bytes(b"\xff\xfe\x00binary")
    with pytest.raises(
        PoolError, match=r"cannot read the pool card .*card\.yaml: it is not UTF-8 text: byte 0xff at position 0"
    ):
        load_card(tmp_path / "card.yaml")
    with pytest.raises(PoolError, match=r"there is no pool card .*gone\.yaml"):
        load_card(tmp_path / "gone.yaml")


def test_a_key_that_stands_twice_and_a_number_that_is_a_yes_are_refused(tmp_path):
    with pytest.raises(PoolError, match=r"not valid YAML at line 2, column 1: 'name' stands there twice"):
        load_card(write(tmp_path, "name: one\nname: two\n"))
    with pytest.raises(PoolError, match="draft_length: must be a number, not a yes or no"):
        load_card(write(tmp_path, {**GOOD, "draft_length": True}))


def test_yaml_cannot_run_code(tmp_path):
    with pytest.raises(PoolError, match="could not determine a constructor"):
        load_card(write(tmp_path, "name: !!python/object/apply:os.getcwd []"))


def test_a_card_of_a_folder_names_nothing_outside_of_it(tmp_path):
    folder, secret = tmp_path / "cards", tmp_path / "secret.yaml"
    (folder / "pool" / "target").mkdir(parents=True)
    (folder / "pool" / "math").mkdir()
    secret.write_text(yaml.safe_dump({"examples": [{"task": "t", "prompt": "password"}]}))
    path = write(folder / "pool", GOOD)
    assert load_card(path, folder)[0].local_paths == {"target.path": "target", "drafters.0.path": "math"}
    assert load_card(write(folder / "pool", {**GOOD, "examples": "pocket"}), folder)[0].examples
    (folder / "near").symlink_to("pool/math")
    load_card(write(folder / "pool", {**GOOD, "router": "../near"}), folder)
    wrong = [
        {"target": {"path": "../../elsewhere"}},
        {"target": {"path": str(tmp_path)}},
        {"router": "/etc"},
        {"examples": "../../secret.yaml"},
        {"drafters": [{"name": "mine", "kind": "custom", "path": "../../own.py", "factory": "Own"}]},
        {"drafters": [{"name": "m", "kind": "medusa", "path": "math", "rescorer": "../../a"}]},
        {"target": {"path": "nul\0name"}},
    ]
    fields = [
        "target.path",
        "target.path",
        "router",
        "examples",
        "drafters.0.path",
        "drafters.0.rescorer",
        "target.path",
    ]
    for change, field in zip(wrong, fields, strict=True):
        path = write(folder / "pool", {**GOOD, **change})
        said = f" in its field {field}, which lies outside the folder {folder}. .*copy .*MULTIDRAFT_POOL"
        with pytest.raises(PoolError, match=said):
            load_card(path, folder)
        load_card(path)  # the operator's own choice
    path = write(folder / "pool", GOOD)
    for link, leads in (("target/vocab.json", secret), ("math/more", tmp_path), ("target/circle", "circle")):
        (folder / "pool" / link).symlink_to(leads)
        with pytest.raises(PoolError, match=f"{link.partition('/')[2]} in it is a link to outside the folder") as told:
            load_card(path, folder)
        assert "secret" not in str(told.value)
        (folder / "pool" / link).unlink()
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(PoolError, match=r"card\.yaml is a link to a file outside the folder "):
        load_card(path, folder)


def test_finding_a_card(tmp_path):
    path = write(tmp_path, GOOD)
    assert find_card(path) == path
    assert find_card(str(path)) == path
    assert find_card(tmp_path) == path
    for name in pool_names():
        assert find_card(name) == POOLS / f"{name}.yaml"


@pytest.mark.parametrize("name", ["no-such-pool", "", "x" * 5000, "nul\0name"])
def test_an_unknown_pool(name):
    with pytest.raises(PoolError, match=r"unknown pool .*bundled pools: "):
        find_card(name)


@pytest.mark.parametrize("name", pool_names())
def test_bundled_cards_are_valid(name):
    card, _ = load_card(find_card(name))
    assert isinstance(card, Card)
    assert card.name == name


@pytest.mark.parametrize("name", ["pocket", "pocket.yaml"])
def test_examples_of_a_bundled_card_by_its_name(tmp_path, name):
    card, _ = load_card(write(tmp_path, {**GOOD, "examples": name}))
    assert card.examples == load_card(POOLS / "pocket.yaml")[0].examples


def test_examples_of_a_bundled_card_are_found_from_anywhere(tmp_path):
    card = tmp_path / "mine.yaml"
    card.write_text((POOLS / "pocket-mixed.yaml").read_text().replace("../pocket", str(POOLS.parent / "pocket")))
    assert len(load_card(card)[0].examples) == len(load_card(POOLS / "pocket.yaml")[0].examples) > 0


@pytest.mark.parametrize("name", ["../pools/../secret", "mine.yaml", "/nowhere/mine.yml"])
def test_a_card_that_is_missing(name):
    with pytest.raises(PoolError, match=f"there is no pool card {name}; bundled pools: "):
        find_card(name)
