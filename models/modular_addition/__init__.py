"""A one-layer transformer that learns arithmetic modulo a prime, first by heart and much later for real."""
