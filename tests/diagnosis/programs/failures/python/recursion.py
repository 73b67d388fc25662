# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["RecursionError: maximum recursion depth exceeded", "{here}"]
# ///
"""A thousand frames, of which Python prints a few."""


def flatten(tree):
    return [flatten(tree)]  # here


flatten([])
