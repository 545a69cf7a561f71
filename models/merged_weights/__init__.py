"""In-context regression with one head of merged weights (paper 002): task, model, theory and prediction errors."""
