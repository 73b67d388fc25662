# /// verdict
# command = "sh {program}"
# ranks = 1
# who = ["rank 0"]
# says = ["exit code 127", "No such file or directory"]
# ///
# The program was saved with the line ends of Windows, so its first line names an interpreter that is not there.
printf '#!/usr/bin/env python3\r\nprint(1)\r\n' > train
chmod +x train
exec ./train
