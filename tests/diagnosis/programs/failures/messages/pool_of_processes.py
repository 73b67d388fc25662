# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["ZeroDivisionError", "{here}"]
# ///
"""An error in a process of a pool: Python prints it in quotes first, and then again as the parent's."""
from multiprocessing import Pool


def mean(rows):
    return sum(rows) / len(rows)  # here


if __name__ == "__main__":
    with Pool(2) as pool:
        pool.map(mean, [[1, 2], [], [3]])
