# /// verdict
# command = "sh {program}"
# who = ["rank 0", "rank 1"]
# says = ["exit code 3", "the licence server has no seat"]
# short = true
# ///
# A program that is not Python says why in its last line.
echo starting
echo "the licence server has no seat" >&2
exit 3
