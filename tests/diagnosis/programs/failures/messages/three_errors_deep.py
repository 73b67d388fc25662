# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["RuntimeError: cannot resume", "{here}", "caused by KeyError: 'step'"]
# ///
"""Three errors, each raised from the one before; the last is what Python ends with."""


def read(text):
    try:
        return int(text)
    except ValueError as error:
        raise ValueError("version 9 of the file is not known") from error


try:
    try:
        read("nine")
    except ValueError as error:
        raise KeyError("step") from error
except KeyError as error:
    raise RuntimeError("cannot resume from checkpoint 3") from error  # here
