"""What ran: the recorder that hands runs to the archive, and the routes that answer from it when the objects are gone.

May import what `rest` may, and the archive. Begin with `recorder.py`; `past_workloads.py` makes workloads of records again.
"""
