# /// verdict
# command = "sh -c 'sed 8s/:// {program} > $SCRATCH/train.py; exec python $SCRATCH/train.py'"
# ranks = 1
# who = ["rank 0"]
# says = ["SyntaxError: expected ':'", "train.py:8"]
# ///
"""sed takes a colon out of line 8, so Python cannot parse what is left."""
if True:
    print("never")
