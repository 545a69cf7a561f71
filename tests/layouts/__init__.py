"""The ways in which people lay out checkpoints, each saved as they save them, opened, and compared with the truth.

`python -m tests.layouts` writes docs/layouts.md.
"""
