"""What pages share: how they look and are written, verdicts, runs trained side by side, curves of seeds, exponents."""
