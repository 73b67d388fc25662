"""Who starts the pods of a job together on a real cluster, and how a job asks for it: one dialect for each scheduler.

May import: the words, `scheduling` (names, shares of GPUs) and `workloads` (what was submitted). Begin with `dialects.py`.
"""
