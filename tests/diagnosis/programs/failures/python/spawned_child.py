# /// verdict
# needs = ["torch"]
# ranks = 1
# who = ["rank 0", "rank 1"]
# says = ["ValueError: learning rate -1", "{here}"]
# ///
"""torch's spawn: the error of the child is in the message of the parent's."""
import torch.multiprocessing as mp


def train(rank):
    if rank == 1:
        raise ValueError("learning rate -1")  # here


if __name__ == "__main__":
    mp.spawn(train, nprocs=2)
