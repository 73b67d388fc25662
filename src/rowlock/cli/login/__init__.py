"""Who the command lines are to the server: the owner by the token of the data directory, or whoever logged in."""
