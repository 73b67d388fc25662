"""Run:ai's workloads, in both directions: a submit becomes job objects, objects become phases and Run:ai's JSON. Pure.

Times, ids and users are arguments; `rest` is the only caller. May import: the words, `training`, `scheduling`. Begin
with `submission.py` and `objects.py` (in), `phase.py` and `runai_json.py` (out).
"""
