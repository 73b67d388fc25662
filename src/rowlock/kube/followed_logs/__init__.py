"""A pod's log that is followed through broken streams: where its reader is (`position.py`), and what is read next (`follower.py`)."""
