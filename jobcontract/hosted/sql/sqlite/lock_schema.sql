-- One installation at a time: the transaction holds the write lock. Parameter: what is installed.
SELECT ?
