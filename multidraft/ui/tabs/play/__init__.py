"""The tab *Play*: one prompt, streamed."""
