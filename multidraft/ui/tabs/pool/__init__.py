"""The tab *Pool*: what is loaded and what can be."""
