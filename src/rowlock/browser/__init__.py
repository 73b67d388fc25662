"""The web UI's door: browsers come in over plain HTTP on loopback, with a session, to the built pages and the REST API.

May import what `rest` may, and `rest`. Begin with `door.py`; `sessions.py` authenticates browsers, `feed.py` streams workloads to open pages.
"""
