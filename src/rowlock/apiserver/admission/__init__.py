"""The admission chain: defaulting, mutating plugins, validation, webhooks of the training operator, quota, managed fields.

May import `schema`, `validation`, `apply` and the deciding rooms. Begin with `chain.py`.
"""
