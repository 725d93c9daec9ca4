"""Indexes over text that retrieval drafters copy from: suffix automaton, datastore."""
