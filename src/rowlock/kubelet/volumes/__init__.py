"""Volumes of pods: what each is made of, directories on disk, persistent volume claims, checkpoint directories.

May import `files`, `pod`, `shim`. Begin with `volumes.py`.
"""
