"""Figures of workloads as Run:ai's API has them: what they ask for, what they hold, how long they waited and ran. Pure.

May import the words, and of `workloads` what knows no JSON of Run:ai's. Begin with `resources.py`.
"""
