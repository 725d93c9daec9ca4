"""The tab *Results*: all batches, races and benchmarks of the history."""
