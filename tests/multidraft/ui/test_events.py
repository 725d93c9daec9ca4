from __future__ import annotations

import gradio as gr

from multidraft.ui.events import changes, skips


def test_what_did_not_change_is_not_sent_again() -> None:
    assert changes(("a", "b", "c"), ("a", "B", "c")) == (gr.skip(), "B", gr.skip())
    assert changes((), ()) == skips(0) == ()
