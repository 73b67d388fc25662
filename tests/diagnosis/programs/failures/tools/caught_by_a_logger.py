# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["ZeroDivisionError: division by zero", "{here}"]
# ///
"""loguru's `catch`: the error is a record with values beside each call, and the program leaves with 1."""
import sys
import traceback
from datetime import datetime


def mean(values):
    return sum(values) / len(values)  # here


def train():
    return mean([])


try:
    train()
except ZeroDivisionError as error:
    stamp = f"{datetime.now():%Y-%m-%d %H:%M:%S.%f}"[:-3]
    print(f"{stamp} | ERROR    | __main__:<module>:24 - An error has been caught in function '<module>', process 'MainProcess' (7), thread 'MainThread' (140):")
    print("Traceback (most recent call last):\n")
    frames = traceback.extract_tb(error.__traceback__)
    for number, frame in enumerate(frames):
        mark = ">" if number == 0 else " "
        print(f'{mark} File "{frame.filename}", line {frame.lineno}, in {frame.name}')
        print(f"    {frame.line}\n    └ <function {frame.name} at 0x7f0000000000>\n")
    print("ZeroDivisionError: division by zero", flush=True)
    sys.exit(1)
