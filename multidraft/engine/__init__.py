"""The core loop: draft, verify, learn."""
