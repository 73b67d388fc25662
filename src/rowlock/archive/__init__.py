"""The archive: what ran, kept beside the store after its objects are gone: phases, events, objects, logs, verdicts, figures.

May import the words of the package only; the kubelet, the REST API and the assemblies stand above it, the store knows nothing of it.
Begin with `archive.py`, and for an archive of several servers with `shared_archive.py`; `docs/design/archive.md` says why it is made so.
"""
