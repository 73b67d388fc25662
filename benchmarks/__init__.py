"""Measurements, each printed as a ratio against a peer or a floor of the same run. `python -m benchmarks` runs all."""
