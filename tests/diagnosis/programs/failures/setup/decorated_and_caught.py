# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["exit code 1", "ZeroDivisionError: division by zero", "{here}"]
# ///
"""A decorator of the kind of loguru prints the traceback with values beside the calls, and the program leaves with 1."""
import sys


def mean(values):
    return sum(values) / len(values)  # here


try:
    mean([])
except ZeroDivisionError:
    print(
        f"""2026-11-30 03:12:45.123 | ERROR    | __main__:<module>:18 - An error has been caught in function '<module>', process 'MainProcess' (77), thread 'MainThread' (13990):
Traceback (most recent call last):

> File "{__file__}", line {sys._getframe().f_lineno}, in <module>
    mean([])
    └ <function mean at 0x7f8c2c0e5d00>

  File "{__file__}", line {mean.__code__.co_firstlineno + 1}, in mean
    return sum(values) / len(values)  # here
               │             └ []
               └ []

ZeroDivisionError: division by zero
""",
        file=sys.stderr,
    )
    sys.exit(1)
