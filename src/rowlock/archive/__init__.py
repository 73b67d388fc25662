"""The archive: what ran, kept beside the store after its objects are gone: phases, events, objects, logs, verdicts, figures.

May import the words of the package only. The kubelet, the REST API and the assemblies use it; the store does not know it.
Begin with `archive.py`, and for an archive of several servers with `shared_archive.py`; `docs/design/archive.md` explains the design.
"""
