import re
from types import SimpleNamespace
from typing import Any

import pytest

from multidraft.ui.widgets.controls import PromptTab

TASKS = SimpleNamespace(drafters=["math", "sql"])


@pytest.mark.parametrize(("router", "only_tasks"), [(None, False), (TASKS, False), (TASKS, True)])
def test_what_may_be_asked_and_a_warning_take_one_short_line_each(router: Any, only_tasks: bool) -> None:
    card = SimpleNamespace(only_tasks=only_tasks)
    pool = SimpleNamespace(router=router, card=card, fits=lambda prompt: prompt != "odd")
    tab = PromptTab(SimpleNamespace(pool=pool))  # type: ignore[arg-type]
    told = {prompt: tab.fit_html(prompt) for prompt in ("", "fitting", "odd")}
    if not only_tasks:
        assert set(told.values()) == {""}
        return
    assert told[""] == told["fitting"] and "md-idle" in told[""] and "md-odd" in told["odd"]
    for html in told.values():
        text = re.sub("<[^>]*>", "", html)
        assert len(text) < 70, text
    assert "2 kinds of task" in told[""]
