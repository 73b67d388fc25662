"""Logs of workloads over REST: merged and followed (`logs.py`), and what one line of a program's output is (`lines.py`)."""
