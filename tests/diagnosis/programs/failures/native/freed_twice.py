# /// verdict
# ranks = 2
# who = ["rank 1"]
# says = ["rank 1", "SIGABRT", "double free detected"]
# ///
"""glibc ends rank 1, for an extension frees memory twice; rank 0 goes on."""
import ctypes
import os
import time

print("step 1", flush=True)
if os.environ["RANK"] == "1":
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    place = libc.malloc(40)
    libc.free(place)
    libc.free(place)
time.sleep(300)
