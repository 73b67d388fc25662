"""Deciding what happened, in one sentence: who failed first, who waits for whom, who is slow. Pure; evidence comes in."""
