//! Which flaw has to be noticed by which clauses: a clause that no flaw can fail does not count.
