"""Workloads beyond submit, list and show: trainings and workspaces, pods of all workloads, batches.

May import what `rest` may, and `workloads.py` beside it. Begin with `standard.py`.
"""
