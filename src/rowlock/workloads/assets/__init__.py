"""Assets: reusable parts of a submit (environments, compute resources, data sources) and templates of whole ones. Pure.

May import the words and the rest of `workloads`. Begin with `asset_kinds.py`.
"""
