"""`kubectl get`'s columns: the Table of every kind, the STATUS of a pod, ages and durations.

Pure; the part of k8s.io/kubernetes/pkg/printers. Begin with `tables.py`.
"""
