"""The workloads of a list as rows, which remember what was read of them. Begin with `workload_rows.py`.

May import the words and `workloads`; the informers keep the rows current.
"""
