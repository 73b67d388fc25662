"""Word when it matters: what happens to runs, sent to an address, by e-mail, or to the operator's command. Begin with `notifier.py`."""
