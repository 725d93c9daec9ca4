"""``deploy``: put the app on a Hugging Face Space, with one command."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import huggingface_hub
import yaml
from huggingface_hub.errors import HfHubHTTPError

import multidraft as md
from drafters.card import Card, find_card, load_card
from drafters.source import Source

ROOT = Path(__file__).parents[2]

PARTS = (
    "app.py",
    "README.md",
    "LICENSE",
    "requirements.txt",
    "pyproject.toml",
    "multidraft",
    "drafters",
    "storage",
    "docs",
)
"""What a Space needs of the repository; nothing else is uploaded."""

SPACE_TOKEN = "MULTIDRAFT_SPACE_TOKEN"
"""Variable with the token for the Space; not the user's own, which may have more permissions than it needs."""

_SETUP = (".json", ".txt", ".model", ".jinja")
_WEIGHTS = (".safetensors", ".bin", ".pt")
"""Files of a model that are loaded: configuration and tokenizer; weights, of the first of these formats it has."""

_QUANTISERS = "bitsandbytes>=0.48\naccelerate>=1.10\n"
"""Further requirements of a card with quantised weights."""

_WHY = {
    401: "the token is not valid: log in again (hf auth login)",
    402: "this hardware is charged for: add a payment method, or name another with --hardware",
    403: "the token may not do this: use one with write access; ZeroGPU and cpu-basic need a PRO subscription",
    409: "the name is taken by another kind of repository: choose another",
}


def add(sub: argparse.ArgumentParser) -> None:
    """Its arguments."""
    sub.add_argument("space", help="USER/NAME of the Space")
    sub.add_argument("--hardware", default="cpu-basic", help="zero-a10g (ZeroGPU), t4-small, … (default: cpu-basic)")
    sub.add_argument("--pool", default="pocket", help="a bundled card's name or the path of a card of Hub models")
    sub.add_argument("--dataset", help="USER/NAME of a private dataset for copies of the history")
    sub.add_argument("--private", action="store_true", help="make the Space private")
    sub.add_argument("--update", action="store_true", help="replace the files of a Space that exists")
    sub.add_argument("--dry-run", action="store_true", help="show what would be done, and send nothing")


def run(options: argparse.Namespace) -> int:
    """Create or update the Space, or show how."""
    for name in filter(None, (options.space, options.dataset)):
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise md.UserError(f"name it as USER/NAME, with your user name or organisation on the Hub, not {name!r}")
    path = find_card(options.pool).resolve()
    card, _ = load_card(path)
    if options.hardware not in (known := _hardware()):
        raise md.UserError(f"unknown hardware {options.hardware!r}; one of: {', '.join(known)}")
    if path.parent != ROOT / "drafters" / "pools" and (folders := _folders(card)):
        raise md.UserError(
            f"the card {path} names local folders ({', '.join(folders)}), which the Space does not have: "
            "upload these models to the Hub and name them by id"
        )
    deployment = Deployment(options, card, path)
    if options.dry_run:
        deployment.show()
    else:
        deployment.do()
    return 0


class Deployment:
    """A Space as it is to be."""

    def __init__(self, options: argparse.Namespace, card: Card, path: Path):
        self.options, self.card, self.path = options, card, path
        self.variables = {"MULTIDRAFT_POOL": path.stem}
        if options.dataset:
            self.variables["MULTIDRAFT_BACKUP"] = options.dataset
        self.token = os.environ.get(SPACE_TOKEN)

    @property
    def _wants_token(self) -> bool:
        """Whether the Space can use a token: to write its history or to fetch gated models."""
        return bool(self.options.dataset or _repositories(self.card))

    def show(self) -> None:
        """Print what :meth:`do` would do."""
        options = self.options
        visible = "private" if options.private else "public"
        print(f"Space {options.space}: create it ({visible}, gradio, {options.hardware})", end="")
        print(", or replace its files" if options.update else "; stop if it exists")
        for name, value in self.variables.items():
            print(f"variable {name} = {value}")
        if options.dataset:
            print(f"dataset {options.dataset}: create it (private) unless it exists")
        if self._wants_token:
            print(f"secret HF_TOKEN = the value of {SPACE_TOKEN}" + ("" if self.token else ", which is not set"))
        with self.staged(None) as folder:
            files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
            largest = max(files, key=lambda file: file.stat().st_size)
            size = sum(file.stat().st_size for file in files) / 2**20
            print(
                f"upload {len(files)} files, {size:.1f} MiB, the largest {largest.relative_to(folder)} "
                f"({largest.stat().st_size / 2**20:.1f} MiB)"
            )
            front = (folder / "README.md").read_text(encoding="utf-8").split("---\n")[1]
        print(f"README.md begins with\n---\n{front}---")

    def do(self) -> None:
        """Create or update the Space.

        Raises:
            UserError: no token, the Space exists, or the Hub refuses a step; what was done before stays.
        """
        if not huggingface_hub.get_token():
            raise md.UserError("you are not logged in to the Hub: run `hf auth login`, or set HF_TOKEN")
        self._step = f"look for {self.options.space}"
        try:
            self._do(huggingface_hub.HfApi())
        except HfHubHTTPError as error:
            status = error.response.status_code
            said = error.server_message or str(error).strip().partition("\n")[0]
            why = f"{_WHY[status]} ({said})" if status in _WHY else said
            raise md.UserError(f"could not {self._step}: {why}") from None
        except OSError as error:
            first = str(error).strip().partition("\n")[0]
            raise md.UserError(f"could not {self._step}: the Hub cannot be reached ({first})") from None

    def _do(self, api: huggingface_hub.HfApi) -> None:
        options, space = self.options, self.options.space
        exists = api.repo_exists(space, repo_type="space")
        if exists and not options.update:
            raise md.UserError(f"the Space {space} exists: choose another name, or replace its files with --update")
        if options.dataset:
            self._say(f"create the dataset {options.dataset}")
            api.create_repo(options.dataset, repo_type="dataset", private=True, exist_ok=True)
        if exists:
            self._say(f"ask for {options.hardware}")
            api.request_space_hardware(space, options.hardware)
        else:
            self._say(f"create the Space {space}")
            api.create_repo(
                space,
                repo_type="space",
                space_sdk="gradio",
                space_hardware=options.hardware,
                private=options.private,
            )
        for name, value in self.variables.items():
            self._say(f"set the variable {name}")
            api.add_space_variable(space, name, value)
        if self.token and self._wants_token:
            self._say("set the secret HF_TOKEN")
            api.add_space_secret(space, "HF_TOKEN", self.token, description="reads models, writes the history")
        self._say("upload the files")
        with self.staged(api) as folder:
            api.upload_folder(
                repo_id=space,
                repo_type="space",
                folder_path=folder,
                commit_message=f"multidraft {md.version()}",
                delete_patterns="*",
            )
        print(f"https://huggingface.co/spaces/{space} is being built.")
        if options.dataset and not self.token:
            print(
                "It cannot write the history's dataset yet: under Settings, add the secret HF_TOKEN with a token that "
                f"may write {options.dataset} (or set {SPACE_TOKEN} here and run this again with --update)."
            )

    def _say(self, step: str) -> None:
        self._step = step
        print(f"{step} …", flush=True)

    @contextmanager
    def staged(self, api: huggingface_hub.HfApi | None) -> Iterator[Path]:
        """A folder with what is uploaded; ``api``, if given, lists the files of pinned repositories."""
        with tempfile.TemporaryDirectory(prefix="multidraft-deploy-") as name:
            folder = Path(name)
            for part in PARTS:
                if (ROOT / part).is_dir():
                    shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.db*"))
                elif (ROOT / part).exists():
                    shutil.copy(ROOT / part, folder / part)
            pools = folder / "drafters" / "pools"
            shutil.copy(self.path, pools / f"{self.path.stem}.yaml")
            if self.card.router and self.path.parent != ROOT / "drafters" / "pools":
                shutil.copytree(self.path.parent / self.card.router, pools / self.card.router, dirs_exist_ok=True)
            other = yaml.safe_load(self.path.read_text("utf-8")).get("examples")
            if isinstance(other, str) and (self.path.parent / other).exists() and not (pools / other).exists():
                shutil.copy(self.path.parent / other, pools / other)
            if any(source.quantization for source in self.card.sources):
                with (folder / "requirements.txt").open("a") as requirements:
                    requirements.write(_QUANTISERS)
            readme = folder / "README.md"
            front = {"suggested_hardware": self.options.hardware}
            if preload := [_preloaded(source, api) for source in _repositories(self.card)]:
                front = {**front, "preload_from_hub": preload, "startup_duration_timeout": "1h"}
            readme.write_text(with_front_matter(readme.read_text(encoding="utf-8"), front), encoding="utf-8")
            yield folder


def with_front_matter(text: str, changes: dict[str, Any]) -> str:
    """A README whose front matter, the YAML between its first two lines of dashes, has ``changes``."""
    _, front, rest = text.split("---\n", 2)
    changed = yaml.safe_dump({**yaml.safe_load(front), **changes}, sort_keys=False, allow_unicode=True, width=10**6)
    return f"---\n{changed}---\n{rest}"


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


def _folders(card: Card) -> list[str]:
    """Local folders that the card names, except a router beside it, which is uploaded."""
    paths = [card.target.path, *(path for entry in card.drafters for path in entry.local_paths)]
    if card.router and (card.router.is_absolute() or ".." in card.router.parts):
        paths.append(str(card.router))
    return [path for path in paths if path]


def _hardware() -> list[str]:
    return [hardware.value for hardware in huggingface_hub.SpaceHardware]
