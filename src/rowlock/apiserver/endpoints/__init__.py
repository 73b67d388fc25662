"""What a request does: the verbs, watches, subresources, reviews, and the kinds that are served in a way of their own.

May import `http`, `schema`, `admission`, `patch`, `apply`, `printers`, `discovery` and `storage`. Begin with `verbs.py`.
"""
