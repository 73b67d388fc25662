"""The workloads of a list as rows that cache the fields read from them. Begin with `workload_rows.py`.

May import the words and `workloads`; the informers keep the rows current.
"""
