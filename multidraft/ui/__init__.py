"""The web app: the only part of the package that knows Gradio and Plotly."""

from multidraft.ui.app import build, launch

__all__ = ["build", "launch"]
