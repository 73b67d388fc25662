"""The operator's validating webhooks, word for word (`webhooks.py`), and advice for `rowlock check` (`advice.py`)."""
