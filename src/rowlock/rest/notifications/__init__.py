"""Word when it matters: what happens to runs, sent as JSON to an address that a job or the operator names. Begin with `notifier.py`."""
