"""What writes runs: one training loop, and the models with their theory beside them."""
