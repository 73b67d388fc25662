"""`rowlock run --source`: a snapshot of a directory (`snapshot.py`), and the copy that a job runs in (`working_copy.py`)."""
