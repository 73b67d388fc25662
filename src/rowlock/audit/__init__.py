"""The audit log: who changed what, from where, and what was refused, as JSON lines in the data directory.

May import the words. Begin with `audit_log.py`.
"""
