"""Many series at once: what happened in a run, when, in which heads, and how sure that is."""
