"""What a watch of a real cluster sends: lines of its stream (`watch_stream.py`), and the objects in them, small (`object_decoder.py`).

May import: the words. Begin with `watch_stream.py`.
"""
