# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["FileNotFoundError", "/data/merges.txt"]
# ///
"""The processes of a pool cannot begin: their initializer fails, and the program sees a broken pool."""
from concurrent.futures import ProcessPoolExecutor


def begin():
    open("/data/merges.txt")


if __name__ == "__main__":
    with ProcessPoolExecutor(2, initializer=begin) as pool:
        print(list(pool.map(len, ["a", "b"])))
