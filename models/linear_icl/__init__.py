"""In-context vector regression with one linear attention head (paper 000): task, model and theory."""
