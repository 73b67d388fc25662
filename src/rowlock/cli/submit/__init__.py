"""Submits of both generations of `runai`: their flags from the table of fields (`flags.py`), the request (`request.py`)."""
