"""In-context regression with deep linear attention (paper 003): contexts, reduced and full models, theory."""
