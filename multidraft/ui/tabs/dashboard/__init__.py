"""The tab *Dashboard*: the history."""
