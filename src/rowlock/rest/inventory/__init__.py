"""What the cluster consists of: clusters, departments, node pools, nodes, with lists as Run:ai's.

May import what `rest` may. Begin with `nodes.py`.
"""
