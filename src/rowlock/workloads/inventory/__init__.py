"""What a cluster consists of, as Run:ai's API has it, made of Kubernetes objects: nodes, node pools, departments. Pure.

May import the words and the rest of `workloads`. Begin with `nodes.py`.
"""
