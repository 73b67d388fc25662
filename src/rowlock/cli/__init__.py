"""The command line: `rowlock` and `runai`. Speaks HTTP only and imports nothing of the rest, so that it starts at once."""
