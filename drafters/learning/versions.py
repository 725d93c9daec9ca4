"""Versions of a drafter that learns, on disk: they outlast the process, and older ones can be looked at again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from drafters.errors import PoolError
from drafters.files import replacing

KEPT = 8
"""Versions that stay on disk; the oldest go first."""

_NAME = re.compile(r"(\d{6})-([0-9a-f]{8})\.safetensors")


@dataclass(frozen=True)
class Version:
    """What a drafter has learnt.

    Attributes:
        number: how often it has changed; 0 is what it began with.
        digest: of its weights, 8 hex digits; the same number may be reached twice.
    """

    number: int
    digest: str

    def __str__(self) -> str:
        return f"{self.number}-{self.digest}"


class Versions:
    """The folder of one drafter.

    Args:
        who: the drafter, for messages.
        start: digest of the weights that it began with: versions that began with others are not its own.
    """

    def __init__(self, folder: Path, who: str, start: str):
        self.folder, self.who, self.start = folder, who, start

    def newest(self) -> tuple[Version, dict[str, torch.Tensor]] | None:
        """The last version that was saved, with its weights.

        Raises:
            PoolError: it cannot be read, or began with other weights.
        """
        if not (found := self._files()):
            return None
        version, file = found[-1]
        advice = f"remove {self.folder} to let it begin anew, or name another folder"
        try:
            with safe_open(file, "pt") as stored:
                began = (stored.metadata() or {}).get("start")
                weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (no mapping)
        except (OSError, SafetensorError) as error:
            raise PoolError(f"{self.who}: {file} cannot be read ({error}); remove it, or {advice}") from None
        if began != self.start:
            raise PoolError(f"{self.who}: {file} was learnt from other weights than those of the card; {advice}")
        return version, weights

    def save(self, version: Version, weights: dict[str, torch.Tensor]) -> None:
        """Write a version and remove those that are too old; an interruption leaves the last one whole.

        Raises:
            OSError: the disk is full, or the folder may not be written to.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{version.number:06}-{version.digest}.safetensors"
        kept = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
        try:
            with replacing(file) as part:
                save_file(kept, part, {"start": self.start})
        except SafetensorError as error:
            raise OSError(str(error)) from error
        for _, old in self._files()[:-KEPT]:
            old.unlink(missing_ok=True)

    def _files(self) -> list[tuple[Version, Path]]:
        named = ((_NAME.fullmatch(file.name), file) for file in sorted(self.folder.glob("*.safetensors")))
        return [(Version(int(match[1]), match[2]), file) for match, file in named if match]
