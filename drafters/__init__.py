"""All that can propose tokens: one kind of drafter a file, and the pools that hold them."""
