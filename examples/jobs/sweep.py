"""One training of a sweep: the pod's number in its Job chooses the learning rate. A Job that is not Indexed trains once."""

import os

import torch

RATES = (0.3, 0.1, 0.03)


def main() -> None:
    index = int(os.environ.get("JOB_COMPLETION_INDEX", "0"))
    torch.manual_seed(0)
    inputs = torch.randn(256, 4)
    targets = inputs @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
    weights = torch.zeros(4, 1, requires_grad=True)
    rate = RATES[index % len(RATES)]
    for _ in range(200):
        loss = torch.nn.functional.mse_loss(inputs @ weights, targets)
        (slope,) = torch.autograd.grad(loss, weights)
        weights = (weights - rate * slope).detach().requires_grad_()
    print(f"training {index}: rate {rate}, loss {loss.item():.6f}", flush=True)


if __name__ == "__main__":
    main()
