"""Programs that people use with OpenAI-compatible servers, really run; see ``python -m tests.clients --help``."""
