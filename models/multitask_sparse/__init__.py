"""Multitask sparse feature regression with linear self-attention (paper 004): tasks, model, theory."""
