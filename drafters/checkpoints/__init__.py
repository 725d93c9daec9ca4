"""Public checkpoint layouts on disk or on the Hub, read into shapes and weights."""
