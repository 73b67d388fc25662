"""Sweeps over REST: `/api/v1/sweeps`. Begin with `submits.py` (a new one) and `routes.py` (what there is of them).

May import what `rest` may. The runs are made by a controller of the server (`rowlock.sweeps`), not by requests.
"""
