"""Corpus and recipe of the bundled pocket models."""
