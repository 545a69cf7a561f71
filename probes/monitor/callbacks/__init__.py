"""A monitor inside somebody else's training loop: one file per trainer, imported by whoever uses that trainer."""
