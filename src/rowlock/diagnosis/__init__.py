"""What happened to a job, in one sentence: the root cause, who keeps whom waiting, who is slow. Pure; evidence comes in.

May import: the words. The evidence is gathered in `diagnostics`. Begin with `root_cause.py`.
"""
