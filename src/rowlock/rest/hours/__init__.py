"""GPU hours over REST: `GET /api/v1/hours`, by project, user or job. Begin with `routes.py`; `reading.py` reads the archive in a thread.

May import what `rest` may. How hours are computed is `rowlock.workloads.figures.hours`.
"""
