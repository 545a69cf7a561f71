"""What pages share: claims and rules, verdicts, which places of a paper they cover, how pages look and are written, runs.

A page is a list of `claims.Claim` and `claims.Unjudged`, judged by `rules`. Each paper lists its figure panels and
numbered results in a `coverage.py` (its form: `coverage`), and each of them has a row or a reason why it has none.
"""
