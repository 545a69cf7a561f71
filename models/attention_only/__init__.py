"""Attention-only transformers on tasks that can only be solved in context."""
