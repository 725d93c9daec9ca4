"""Models as a forward with a cache that can take tokens back: the target, and the networks of drafting heads."""
