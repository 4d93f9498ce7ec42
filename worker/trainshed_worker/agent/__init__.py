"""The node agent: one process per machine, N slots, each a node of the service.

It brings each slot to what the service wants of it and reports what it sees. The invariant that everything here keeps:
whatever must outlive a `kill -9` is on disk before anyone is told of it, and every step may be done again.
"""
