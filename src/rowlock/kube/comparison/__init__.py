"""One job on two clusters, an embedded and a real one: what differs in its pods, conditions and events (`rowlock diff-engines`)."""
