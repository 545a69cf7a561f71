"""Paper 004, Lyu, Wang & Zhu: many sparse tasks, each with a flow of its own."""
