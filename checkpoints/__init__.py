"""What a run leaves on disk, and how to read anybody's."""
