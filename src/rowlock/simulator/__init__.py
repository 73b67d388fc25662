"""The real planner without a cluster: replays of snapshots, traces of jobs on fake nodes, figures and pictures of them.

Programs that read a file and print. May import: the words, `scheduling`. Begin with `simulate.py`.
"""
