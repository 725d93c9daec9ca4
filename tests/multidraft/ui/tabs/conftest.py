"""Tabs are laid out in these tests, but not served."""

import pytest
from gradio.routes import App


@pytest.fixture(autouse=True)
def no_app(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradio makes the app that would serve a page twice for each: most tests would spend most of their time on it."""
    monkeypatch.setattr(App, "create_app", lambda blocks, **settings: None)
