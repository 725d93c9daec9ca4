"""The tab *Race*: policies side by side on one prompt."""
