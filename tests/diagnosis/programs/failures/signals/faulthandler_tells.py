# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["SIGSEGV", "{here}"]
# ///
"""A segmentation fault of an extension, with faulthandler on, as torch's and pytest's users have it."""
import ctypes
import faulthandler

faulthandler.enable()


def gather():
    ctypes.string_at(0)  # here


gather()
