# /// verdict
# needs = ["torch"]
# command = "bash {program}"
# ranks = 1
# who = ["rank 0"]
# says = ["exit code 2", "--nproc-per-gpu"]
# ///
# torchrun does not know this flag, and prints its usage of dozens of lines.
exec torchrun --standalone --nproc-per-gpu=2 train.py --epochs 3
