# /// verdict
# needs = ["torch"]
# after = "backward"
# who = ["rank 1"]
# says = ["rank 1 keeps the others waiting", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""rank 1 waits for a future that nobody completes, in a communication hook of DDP; rank 0 waits in backward."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))


def hook(state, bucket):
    if dist.get_rank() == 1:
        torch.futures.Future().wait()  # here
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


model.register_comm_hook(None, hook)
print("backward", flush=True)
model(torch.ones(2, 4)).sum().backward()
