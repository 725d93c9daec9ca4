"""An OpenAI-compatible server: completions, chat completions and models, on the port of the page."""
