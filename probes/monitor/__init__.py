"""A training run watched while it goes on."""
