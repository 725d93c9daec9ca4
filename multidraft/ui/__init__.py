"""The web app: the only part of the package that knows Gradio and Plotly."""
