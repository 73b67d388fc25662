"""`rowlock top`, and `runai top`: what runs and what it uses now, from `GET /api/v1/usage`; `rowlock usage`: GPU hours. Begin with `command.py`."""
