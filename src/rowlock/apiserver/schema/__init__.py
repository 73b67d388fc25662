"""The table of types (`types.json`) and what reads it: decoding, pruning, defaulting, CRD schemas, protobuf, RFC 3339 times.

May import the words only. Facts come from `scripts/make_types.py`, never by hand. Begin with `types.py`.
"""
