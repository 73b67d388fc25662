"""Rehearsals: the real planner without a cluster. Programs that read a file and print.

replay.py    a snapshot's decisions, each with its sentence
simulate.py  a trace of jobs played on pretend nodes, event by event
"""
