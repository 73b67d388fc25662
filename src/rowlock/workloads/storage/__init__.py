"""The storage of a submit: volumes, mounts, claims, and copies that are brought in before the program starts. Pure.

May import the words and `body_fields`. Begin with `pod_storage.py`.
"""
