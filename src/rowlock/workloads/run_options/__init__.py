"""Options of a submit that Run:ai's API does not have: who is told what happens (`notify.py`). Pure."""
