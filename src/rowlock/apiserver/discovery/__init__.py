"""What clients ask first: groups and resources, OpenAPI v2 and v3, the sentences of `kubectl explain`.

May import `http` and `schema`. Begin with `groups.py`.
"""
