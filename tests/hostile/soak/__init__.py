"""A user's week in an hour: `make soak-live`."""
