"""The one-file page: what happened in a run, when, in which heads, how sure that is, and what was not seen."""
