import re
from types import SimpleNamespace
from typing import Any

import pytest

from multidraft.ui.widgets.controls import PromptTab


@pytest.mark.parametrize("router", [None, SimpleNamespace(drafters=["math", "sql"])])
def test_what_may_be_asked_and_a_warning_take_one_short_line_each(router: Any) -> None:
    pool = SimpleNamespace(router=router, fits=lambda prompt: prompt != "odd")
    tab = PromptTab(SimpleNamespace(pool=pool))  # type: ignore[arg-type]
    told = {prompt: tab.fit_html(prompt) for prompt in ("", "fitting", "odd")}
    if router is None:
        assert set(told.values()) == {""}
        return
    assert told[""] == told["fitting"] and "md-idle" in told[""] and "md-odd" in told["odd"]
    for html in told.values():
        text = re.sub("<[^>]*>", "", html)
        assert "2 kinds of task" in text and len(text) < 70, text
