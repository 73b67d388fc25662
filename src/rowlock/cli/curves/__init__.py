"""`rowlock plot`: curves of runs, from the lines that programs printed (`lines.py`), drawn as text (`terminal.py`) or SVG (`svg.py`)."""
