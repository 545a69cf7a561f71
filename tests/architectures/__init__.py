"""Every architecture that Transformers can build, tiny: what its attention does against what this library reads.

`python -m tests.architectures` writes the table in docs/architectures.md; `--all` goes through the whole registry.
To add a model, add a line to `MODELS` in `models.py`.
"""
