"""`rowlock`'s commands, one file a topic; `tree.py` is the table of verbs and flags that names them."""
