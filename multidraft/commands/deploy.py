"""``deploy``: put the app on a Hugging Face Space, with one command."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub
import yaml
from huggingface_hub.errors import HfHubHTTPError

import multidraft as md
from drafters.card import Card, find_card, is_bundled, load_card
from drafters.errors import first_line
from drafters.source import Source

ROOT = Path(__file__).parents[2]
POOLS = ROOT / "drafters" / "pools"
PARTS = "app.py README.md LICENSE requirements.txt pyproject.toml multidraft drafters storage docs".split()
"""What a Space needs of the repository; nothing else is uploaded."""

SPACE_TOKEN = "MULTIDRAFT_SPACE_TOKEN"
"""Variable with the token for the Space; not the user's own, which may have more permissions than it needs."""

_USES = "read gated models and write the history's dataset"

_SETUP = (".json", ".txt", ".model", ".jinja")
_WEIGHTS = (".safetensors", ".bin", ".pt")
"""Files of a model that are loaded: configuration and tokenizer; weights, of the first of these formats it has."""

_QUANTISERS = "bitsandbytes>=0.48\naccelerate>=1.10\n"
"""Further requirements of a card with quantised weights."""

_WHY = {
    401: "the token is not valid: log in again (hf auth login)",
    402: "this hardware is not free: add a payment method, or name another with --hardware",
    403: "the token is not allowed to do this: use one with write access; ZeroGPU and cpu-basic need a PRO "
    "subscription",
    409: "the name is taken by another kind of repository: choose another",
}


def add(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("space", help="USER/NAME of the Space")
    sub.add_argument("--hardware", default="cpu-basic", help="zero-a10g (ZeroGPU), t4-small, … (default: cpu-basic)")
    sub.add_argument("--pool", default="pocket", help="a bundled card's name or the path of a card")
    sub.add_argument("--dataset", help="USER/NAME of a private dataset for copies of the history")
    sub.add_argument("--private", action="store_true", help="make the Space private")
    sub.add_argument("--update", action="store_true", help="replace the files of a Space that exists")
    sub.add_argument("--dry-run", action="store_true", help="show what would be done without sending anything")


def run(options: argparse.Namespace) -> int:
    """Create or update the Space, or show how.

    Raises:
        UserError: bad arguments, no token, the Space exists, or the Hub refuses a step; what was done before stays.
    """
    for name in (options.space, options.dataset):
        if name is not None and not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise md.UserError(f"name it as USER/NAME, with your user name or organisation on the Hub, not {name!r}")
    path = find_card(options.pool).resolve()
    card, _ = load_card(path)
    if options.hardware not in (known := [hardware.value for hardware in huggingface_hub.SpaceHardware]):
        raise md.UserError(f"unknown hardware {options.hardware!r}; one of: {', '.join(known)}")
    list(_named(card, path))  # refuses what cannot go along
    if options.dry_run:
        _show(options, card, path)
        return 0
    if not huggingface_hub.get_token():
        raise md.UserError("you are not logged in to the Hub: run `hf auth login`, or set HF_TOKEN")
    api = huggingface_hub.HfApi()
    doing = f"look for {options.space}"
    try:
        for doing, step in _steps(options, card, path, api, exists=api.repo_exists(options.space, repo_type="space")):
            print(f"{doing} …", flush=True)
            step()
    except HfHubHTTPError as error:
        status, said = error.response.status_code, error.server_message or first_line(error)
        why = f"{_WHY[status]} ({said})" if status in _WHY else said
        raise md.UserError(f"could not {doing}: {why}") from None
    except OSError as error:
        raise md.UserError(f"could not {doing}: the Hub cannot be reached ({first_line(error)})") from None
    print(f"https://huggingface.co/spaces/{options.space} is being built.")
    if options.dataset and not os.environ.get(SPACE_TOKEN):
        print(
            "It cannot write the history's dataset yet: under Settings, add the secret HF_TOKEN with a token that "
            f"may write {options.dataset} (or set {SPACE_TOKEN} here and run this again with --update)."
        )
    return 0


def _steps(
    options: argparse.Namespace, card: Card, path: Path, api: huggingface_hub.HfApi, *, exists: bool
) -> Iterator[tuple[str, Callable[[], object]]]:
    """What has to be done, in words and as a call."""
    space, token = options.space, os.environ.get(SPACE_TOKEN)
    if exists and not options.update:
        raise md.UserError(f"the Space {space} exists: choose another name, or replace its files with --update")
    if options.dataset:
        create = partial(api.create_repo, options.dataset, repo_type="dataset", private=True, exist_ok=True)
        yield f"create the dataset {options.dataset} (private)", create
    if exists:
        if options.private:
            yield f"make {space} private", partial(api.update_repo_settings, space, private=True, repo_type="space")
        yield f"ask for {options.hardware}", partial(api.request_space_hardware, space, options.hardware)
    else:
        where = {"repo_type": "space", "space_sdk": "gradio", "space_hardware": options.hardware}
        create = partial(api.create_repo, space, **where, private=options.private)
        yield f"create the Space {space} ({'private' if options.private else 'public'}, {options.hardware})", create
    variables = {"MULTIDRAFT_POOL": _known_as(card, path), "MULTIDRAFT_BACKUP": options.dataset}
    for name, value in variables.items():
        if value:
            yield f"set the variable {name} to {value}", partial(api.add_space_variable, space, name, value)
    if token and _wants_token(options, card):
        secret = partial(api.add_space_secret, space, "HF_TOKEN", token, description=f"to {_USES}")
        yield f"set the secret HF_TOKEN to the value of {SPACE_TOKEN}", secret

    def upload() -> None:
        message = f"multidraft {md.version()}"
        with staged(card, path, options.hardware, api) as folder:
            api.upload_folder(
                repo_id=space, repo_type="space", folder_path=folder, commit_message=message, delete_patterns="*"
            )

    yield "upload the files", upload


def _show(options: argparse.Namespace, card: Card, path: Path) -> None:
    """Print what would be done for a new Space, and what would be uploaded."""
    for doing, _ in _steps(options, card, path, huggingface_hub.HfApi(), exists=False):
        print(doing)
    print(
        f"(if {options.space} exists: {'replace its files' if options.update else 'stop, since --update is not given'})"
    )
    if _wants_token(options, card) and SPACE_TOKEN not in os.environ:
        print(f"HF_TOKEN is not set: put a token that may {_USES} into {SPACE_TOKEN} (docs/spaces.md)")
    with staged(card, path, options.hardware, None) as folder:
        sizes = {file.relative_to(folder): file.stat().st_size / 2**20 for file in folder.rglob("*") if file.is_file()}
        largest = max(sizes, key=sizes.__getitem__)
        total = f"{len(sizes)} files, {sum(sizes.values()):.1f} MiB"
        print(f"{total}, the largest {largest} ({sizes[largest]:.1f} MiB)")
        front = (folder / "README.md").read_text(encoding="utf-8").split("---\n")[1]
    print(f"README.md begins with\n---\n{front}---")


def _known_as(card: Card, path: Path) -> str:
    """The card's name among the bundled ones: its own, unless no file can have that or a bundled card does."""
    own = path.parent != POOLS and re.fullmatch(r"[\w-][\w.-]*", card.name) and not is_bundled(card.name)
    return card.name if own else path.stem


def _wants_token(options: argparse.Namespace, card: Card) -> bool:
    """Whether the Space can use a token: to write its history or to fetch gated models."""
    return bool(options.dataset or _repositories(card))


@contextmanager
def staged(card: Card, path: Path, hardware: str, api: huggingface_hub.HfApi | None) -> Iterator[Path]:
    """A folder with what is uploaded; ``api``, if given, lists the files of pinned repositories."""
    with tempfile.TemporaryDirectory(prefix="multidraft-deploy-") as name:
        folder = Path(name)
        for part in PARTS:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.db*"))
            elif (ROOT / part).exists():
                shutil.copy(ROOT / part, folder / part)
        pools = folder / "drafters" / "pools"
        text = path.read_text("utf-8")
        for name, named, there in _named(card, path):
            text = text.replace(name, there)
            if there.startswith(".."):  # a part of this repository, which is uploaded anyway
                continue
            to = pools / there
            to.parent.mkdir(parents=True, exist_ok=True)
            if named.is_dir():
                shutil.copytree(named, to, dirs_exist_ok=True)
            else:
                shutil.copy(named, to)
        (pools / f"{_known_as(card, path)}.yaml").write_text(text, "utf-8")
        examples = yaml.safe_load(path.read_text("utf-8")).get("examples")
        if isinstance(examples, str) and (path.parent / examples).exists() and not (pools / examples).exists():
            shutil.copy(path.parent / examples, pools / examples)
        heads = [entry.source for entry in card.drafters if entry.kind == "eagle"]  # ONNX Runtime quantises them
        if any(source.quantization for source in card.sources if source not in heads):
            with (folder / "requirements.txt").open("a") as requirements:
                requirements.write(_QUANTISERS)
        changes: dict[str, Any] = {"suggested_hardware": hardware}
        if preload := [_preloaded(source, api) for source in _repositories(card)]:
            changes |= {"preload_from_hub": preload, "startup_duration_timeout": "1h"}
        readme = folder / "README.md"
        _, front, rest = readme.read_text(encoding="utf-8").split("---\n", 2)
        front = yaml.safe_dump(yaml.safe_load(front) | changes, sort_keys=False, allow_unicode=True, width=10**6)
        readme.write_text(f"---\n{front}---\n{rest}", encoding="utf-8")
        yield folder


def _named(card: Card, path: Path) -> Iterator[tuple[str, Path, str]]:
    """Files and folders that a card of one's own names: as what, where they are, and where they will be as seen from
    the bundled cards.

    Raises:
        UserError: one does not exist, or is neither in the card's folder nor a part of this repository.
    """
    for name in card.local_paths.values() if path.parent != POOLS else ():
        named = (path.parent / name).resolve()
        beside = named.is_relative_to(path.parent)
        if not beside and not named.is_relative_to(ROOT / "drafters"):
            raise md.UserError(
                f"the card {path} names {name}, which is outside of its folder and would not be uploaded: copy it into "
                "that folder and name it there, or name a model by its id on the Hub"
            )
        if not named.exists():
            raise md.UserError(f"the card {path} names {name}, which does not exist")
        yield name, named, os.path.relpath(named, path.parent if beside else POOLS)


def _preloaded(source: Source, api: huggingface_hub.HfApi | None) -> str:
    """An entry of ``preload_from_hub``: a repository, or files of one at a commit."""
    assert source.id is not None
    if source.revision is None:
        return source.id
    if api is None:
        return f"{source.id} … {source.revision}"
    files = api.list_repo_files(source.id, revision=source.revision)
    weights = next(filter(None, ([file for file in files if file.endswith(kind)] for kind in _WEIGHTS)), [])
    return f"{source.id} {','.join([*weights, *(file for file in files if file.endswith(_SETUP))])} {source.revision}"


def _repositories(card: Card) -> list[Source]:
    """The distinct Hub repositories of a card."""
    return list({(source.id, source.revision): source for source in card.sources if source.id}.values())
