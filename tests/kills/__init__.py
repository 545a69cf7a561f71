"""Everything that writes, killed at random moments: what goes on afterwards ends as if nothing had happened."""
