"""mpirun's remote shell inside a cluster: programs that run in sandboxes, on the standard library alone.

They are started by path with `python -I -S`, never imported by the agent; `wire.py` is what both ends share.
"""
