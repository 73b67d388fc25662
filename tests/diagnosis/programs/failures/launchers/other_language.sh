# /// verdict
# ranks = 1
# command = "sh {program}"
# who = ["rank 0"]
# says = ["exit code 2", "no shard in /data/shards at"]
# ///
# A step in Perl fails before the training begins.
set -e
echo "sorting shards"
perl -e 'die "no shard in /data/shards"'
echo "never here"
