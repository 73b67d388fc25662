"""How the command lines log in to the server: as the owner, with the token of the data directory, or as another user."""
