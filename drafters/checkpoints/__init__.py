"""Public checkpoint layouts on disk or on the Hub, read into shapes and weights.

What is missing, cannot be read or does not fit the target raises a :class:`~drafters.errors.PoolError` that names the
file, and of tensors the name and both shapes.
"""
