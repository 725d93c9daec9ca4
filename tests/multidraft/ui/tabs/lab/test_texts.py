"""What is chosen in the Lab, as the address has it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gradio as gr
from starlette.datastructures import QueryParams

from multidraft.ui.tabs.lab.texts import restored


def test_the_address_has_what_was_chosen_and_nonsense_in_it_is_passed_over() -> None:
    def of(query: str) -> Any:
        return restored(SimpleNamespace(query_params=QueryParams(query)))  # type: ignore[arg-type]

    suite, tasks, newest, policies = of("lab_suite=sums&lab_task=a&lab_task=b&lab_newest=7&lab_policy=ucb:beta=0.1")
    assert suite.value == "sums" and tasks.value == ["a", "b"] and newest == 7 and policies == ["ucb:beta=0.1"]
    assert of("lab_newest=-1&suite=x") == of("") == (gr.skip(),) * 4
