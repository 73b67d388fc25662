"""`rowlock plot`: curves of runs from the lines that their programs printed (`lines.py`), in the terminal (`terminal.py`) and as SVG (`svg.py`)."""
