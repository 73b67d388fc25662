"""What people read of a cycle: why a gang waits, fit histograms, queue status, what-if answers, and the writes that tell it.

Begin with `explanations.py`.
"""
