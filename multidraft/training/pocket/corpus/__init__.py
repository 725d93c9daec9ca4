"""The pocket corpus: task families that write prompts with exact reference answers."""

from multidraft.training.pocket.corpus import (  # noqa: F401  (importing a family registers it)
    json_records,
    math_words,
    python_code,
    sql_query,
    summaries,
    translation,
    two_tasks,
)
from multidraft.training.pocket.corpus.base import FAMILIES, Example, Family, Split

__all__ = ["FAMILIES", "Example", "Family", "Split"]
