"""Server-side apply: managed fields, sets of fields, the merge, and whether a configuration fits its schema.

The part of sigs.k8s.io/structured-merge-diff. Pure; may import `schema`. Begin with `managed_fields.py`.
"""
