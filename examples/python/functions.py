"""A function as the ranks of a job; see docs/python.md."""

import rowlock


def average(values):
    """Every rank gives the mean of its share."""
    import os

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    share = values[rank::world_size]
    print(f"rank {rank} of {world_size} has {len(share)} values")
    return sum(share) / len(share)


if __name__ == "__main__":
    job = rowlock.submit(average, args=([1.0, 2.0, 3.0, 4.0],), nnodes=2)
    print(job.results(timeout=60))
