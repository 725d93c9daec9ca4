"""The tab *Batch*: a suite under several policies."""
