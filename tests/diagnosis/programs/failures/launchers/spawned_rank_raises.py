# /// verdict
# needs = ["torch"]
# ranks = 1
# who = ["rank 0", "rank 1"]
# says = ["ValueError: 7 heads do not divide 64", "{here}", "KeyError"]
# never = ["SIGTERM"]
# ///
"""A rank that torch.multiprocessing.spawn started raises from another error; its sibling is stopped."""
import time

import torch.multiprocessing


def train(rank):
    if rank == 0:
        time.sleep(60)
    try:
        {}["heads"]
    except KeyError as error:
        raise ValueError("7 heads do not divide 64") from error  # here


if __name__ == "__main__":
    torch.multiprocessing.spawn(train, nprocs=2)
