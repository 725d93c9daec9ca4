"""Runs in SQLite: one writer thread (``store``), read-only queries for the dashboard (``queries``)."""
