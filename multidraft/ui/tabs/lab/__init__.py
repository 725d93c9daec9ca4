"""The tab *Lab*: other policies on recorded texts."""
