"""In-context scalar regression with several linear attention heads of low rank (paper 001): task, model and theory."""
