# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["SIGABRT", "Check failed: shard.rows() == expected (1023 vs. 1024)"]
# ///
"""A check of the kind of glog ends the program, with a stack of C++ below it."""
import os
import sys

sys.stderr.write(
    "I1130 03:12:44.000001   771 reader.cc:88] opened 12 shards\n"
    "F1130 03:12:45.000042   771 reader.cc:142] Check failed: shard.rows() == expected (1023 vs. 1024) shard 7 is torn\n"
    "*** Check failure stack trace: ***\n"
    "    @     0x7f8c2c0e5d00  google::LogMessage::Fail()\n"
    "    @     0x7f8c2c0e7f13  google::LogMessage::SendToLog()\n"
    "    @     0x55d0a1b2c3d4  reader::Open()\n"
)
sys.stderr.flush()
os.abort()
