"""Training of drafters by self-distillation, for any target; the pocket pool's corpus and its own training."""
