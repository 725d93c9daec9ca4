"""Pages of results: a run, a race, a batch, a comparison, each at an address of its own that can be sent and cited."""
