"""How often the detector is right, judged on series of which the truth is known and which nobody tuned on."""
