"""Where runs come from: each file knows one way in which people keep their checkpoints, and finds the run in it."""
