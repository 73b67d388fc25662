"""`rowlock top`, and `runai top`: what runs and what it uses now, from `GET /api/v1/usage`. Begin with `command.py`."""
