"""Paper 000, Mainali & Teixeira: the linear head, what its probes see of transformers, and a live monitor."""
