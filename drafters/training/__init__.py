"""The pocket pool's corpus, pretraining and self-distillation."""
