# /// verdict
# ranks = 1
# command = "python {program} --lr 3e-4"
# who = ["rank 0"]
# says = ["exit code 2", "unrecognized arguments: --lr 3e-4"]
# ///
"""A command line that the program does not know."""
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float)
parser.parse_args()
