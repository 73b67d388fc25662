#!/bin/bash
# One torchrun agent per pod; rowlock (like Run:ai) sets MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK in every pod.

master_addr=$MASTER_ADDR # name of the master's pod
master_port=$MASTER_PORT # its port
job_n=$WORLD_SIZE        # how many pods

# batches of 8, 30 epochs, a snapshot every 2
exec torchrun --nproc_per_node=1 --nnodes="${job_n}" --rdzv_endpoint="${master_addr}:${master_port}" --rdzv_backend=c10d distributed.py --batch_size 8 30 2
