"""Sweep a function: the server makes the runs, and the best one is found by its metric. See docs/sweeps.md."""

import rowlock


def train(lr, seed):
    for step in range(5):
        print(f"step={step} val_loss={(lr - 0.01) ** 2 * 100 + seed / 1000 + 1 / (step + 1):.4f}")
    return f"trained with {lr}"


if __name__ == "__main__":
    with rowlock.Client() as client:
        sweep = client.sweep(train, {"lr": [0.1, 0.01], "seed": "1..2"}, name="fn", max_parallel=2)
        print(sweep.wait(timeout=120).phase)
        for row in sweep.table("val_loss"):
            print(row["name"], row["parameters.lr"], row["parameters.seed"], row["best"])
        best = sweep.best("val_loss")
        print(best.name, client.job(best.name).results())
