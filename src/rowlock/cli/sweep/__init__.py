"""`rowlock sweep`: many runs of one command (`submit.py`), and what there is of them (`commands.py`); `tree.py` is the table."""
