"""One pod as values: its facts on disk, what to do about it now (`sync`), the status a kubelet would publish. Pure.

May import the words and `shim.fact_files`. Begin with `sync.py`, then `status.py`.
"""
