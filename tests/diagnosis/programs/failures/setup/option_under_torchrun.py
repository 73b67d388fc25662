# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# ranks = 1
# command = "torchrun --standalone --nproc-per-node 2 {program} --precision bf17"
# who = ["rank 0", "rank 1"]
# says = ["exit code 2", "argument --precision: invalid choice: 'bf17'"]
# ///
"""Both ranks of torchrun refuse an option of the program."""
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--precision", choices=["fp32", "bf16"])
parser.parse_args()
