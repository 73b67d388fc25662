# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["ImportError: the kernels were built for CUDA 11", "libcudart.so.11.0: cannot open shared object file", "{here}"]
# ///
"""A library of another CUDA is not there, and the package says what that means."""
import ctypes

try:
    ctypes.CDLL("libcudart.so.11.0")
except OSError as error:
    raise ImportError("the kernels were built for CUDA 11") from error  # here
