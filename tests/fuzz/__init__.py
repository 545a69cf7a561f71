"""Files and answers changed at random where it hurts, for every format that is read: right data or a named error."""
