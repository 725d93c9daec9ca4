"""Where a model comes from, as cards say it."""

from __future__ import annotations

from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

Quantization = Literal["nf4", "int8"]
"""Weights of 4 or 8 bits, by ``bitsandbytes`` (QLoRA, Dettmers et al. 2023; LLM.int8(), 2022); of drafters that ONNX
Runtime runs 8 bits by itself, in blocks (:mod:`drafters.models.int8`)."""


class Strict(BaseModel):
    """Part of a card: a field that is not its own is an error, and so is a yes or no for a number."""

    model_config = ConfigDict(extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _numbers(cls, value: Any, info: ValidationInfo) -> Any:
        kind = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and {int, float} & {kind, *get_args(kind)}:
            raise ValueError("must be a number, not a yes or no")
        return value


class Place(Strict):
    """A folder beside the card, or a repository on the Hugging Face Hub."""

    path: str | None = Field(None, description="the model's folder, relative to the card's own")
    id: str | None = Field(None, description="Hub repository of the model, e.g. Qwen/Qwen2.5-0.5B-Instruct")
    revision: str | None = Field(None, description="commit of the Hub repository, for reproducible runs")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.path is None) == (self.id is None):
            raise ValueError("give either path (a local folder) or id (a Hub repository)")
        if self.revision is not None and self.id is None:
            raise ValueError("revision is a commit of a Hub repository; without an id there is none")
        return self


class Source(Place):
    """Where a model is, and in which precision it is loaded."""

    model_config = ConfigDict(frozen=True)

    quantization: Quantization | None = Field(None, description="nf4 (4 bits per weight) or int8; by default none")
