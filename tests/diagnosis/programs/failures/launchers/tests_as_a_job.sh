# /// verdict
# needs = ["pytest"]
# ranks = 1
# command = "sh {program}"
# who = ["rank 0"]
# says = ["exit code 1", ["test_the_vocabulary", "assert 3 == 4"]]
# ///
# The tests of a project run as a job, and one of them fails.
cd "$SCRATCH"
printf 'def test_the_vocabulary():\n    assert 3 == 4\n\n\ndef test_fine():\n    pass\n' > test_tokens.py
exec python -m pytest -p no:cacheprovider test_tokens.py
