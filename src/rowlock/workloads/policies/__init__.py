"""Policies: what admins set for submits of a project, a department or everybody: defaults, and rules that hold. Pure.

May import the words and the rest of `workloads`. Begin with `policy.py`.
"""
