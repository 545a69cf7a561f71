"""Paper 003, Bordelon, Letey & Pehlevan: scaling laws of depth, width, context and time."""
