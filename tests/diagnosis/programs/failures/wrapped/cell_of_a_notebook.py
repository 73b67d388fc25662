# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["ValueError", "batch 3 has no labels"]
# ///
"""What papermill says of a notebook whose cell has failed: the cell's traceback, in colours, is the message of its own error."""


class PapermillExecutionError(Exception):
    pass


CELL = """
---------------------------------------------------------------------------
Exception encountered at "In [3]":
---------------------------------------------------------------------------
\x1b[31mValueError\x1b[39m                                Traceback (most recent call last)
\x1b[36mCell\x1b[39m\x1b[36m \x1b[39m\x1b[32mIn[3]\x1b[39m\x1b[32m, line 2\x1b[39m
\x1b[32m      1\x1b[39m \x1b[38;5;28;01mfor\x1b[39;00m step \x1b[38;5;129;01min\x1b[39;00m \x1b[38;5;28mrange\x1b[39m(\x1b[32m9\x1b[39m):
\x1b[32m----> \x1b[39m\x1b[32m2\x1b[39m     train(step)

\x1b[31mValueError\x1b[39m: batch 3 has no labels
"""
raise PapermillExecutionError(CELL)
