"""`rowlock plot`: curves of runs, as the server reads them in logs (`command.py`), drawn as text (`terminal.py`) or SVG."""
