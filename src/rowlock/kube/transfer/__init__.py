"""A job that ran on one cluster, submitted to another one with its code (`rowlock move`): what it becomes there
(`moved_job.py`, pure), and the questions and requests to that cluster (`move.py`, where to begin).
"""
