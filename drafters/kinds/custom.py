"""``custom``: a drafter of one's own, from a Python file beside the card."""

from __future__ import annotations

from types import FunctionType
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from drafters.base import Drafter
from drafters.checkpoints.digest import digest_of, file_digest
from drafters.errors import PoolError
from drafters.files import run_file
from drafters.kinds.base import BuildContext, FileEntry, register
from drafters.supervised import Supervised, described


@register
class CustomEntry(FileEntry):
    """A drafter of kind ``custom``. The file's code is run: a card with one is to be trusted like a program."""

    title = "custom drafter"
    description = "your own, from a Python file beside the card"

    kind: Literal["custom"]
    path: str = Field(description="the path of a .py file, relative to the card")
    factory: str = Field(description="the class or function of the file that makes the drafter")
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the factory")
    seconds: float = Field(5.0, gt=0, description="most seconds of a call, after which it is out for the query")

    @model_validator(mode="after")
    def _python_file(self) -> Self:
        if not (self.factory and self.path.endswith(".py")):
            raise ValueError("a drafter of kind custom needs the path of a .py file and a factory in it")
        return self

    def build(self, context: BuildContext) -> Drafter:
        """Call ``factory(name, target, tokenizer, **options)`` of the file; errors name the line."""
        file, who = self.file(context), f"drafter {self.name!r}"
        if not file.is_file():
            raise PoolError(f"{who}: there is no file {file}")
        try:
            module = run_file(file, f"custom_drafter_{digest_of(str(file))}")
        except (Exception, SystemExit) as error:
            raise PoolError(f"{who}: {file} cannot be run: {described(error, file)}") from error
        if not callable(make := getattr(module, self.factory, None)):
            found = [value for value in vars(module).values() if isinstance(value, type | FunctionType)]
            own = (value.__name__ for value in found if value.__module__ == module.__name__)
            there = ", ".join(name for name in own if not name.startswith("_")) or "none of its own"
            raise PoolError(f"{who}: factory: {file} has no class or function {self.factory!r}; it has {there}")
        try:
            drafter = make(self.name, context.target, context.tokenizer, **self.options)
        except (Exception, SystemExit) as error:
            options = (f"{key}={value!r}" for key, value in self.options.items())
            call = ", ".join(["name", "target", "tokenizer", *options])
            raise PoolError(f"{who}: {self.factory}({call}) of {file} failed: {described(error, file)}") from error
        if not isinstance(drafter, Drafter):
            made = f"made {type(drafter).__name__!r}, which is no drafters.base.Drafter"
            raise PoolError(f"{who}: {self.factory} of {file} {made}")
        drafter.name = self.name
        supervised = Supervised(drafter, self.name, file, self.seconds)
        supervised.digest = file_digest(file)
        return supervised
