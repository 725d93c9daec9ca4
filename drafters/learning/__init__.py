"""How drafters learn from texts that the target has written: what is kept of them, training, versions."""
