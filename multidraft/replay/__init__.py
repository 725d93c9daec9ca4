"""Policies on recorded texts without a model: acceptance tables, the exact walk over them, regret, measured costs."""
