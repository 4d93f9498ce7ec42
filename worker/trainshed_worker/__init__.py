"""The node agent: it holds the machine's slots, runs each job's instances in sandboxes and ships what they print.

Imports go one way: the service imports `trainshed_worker.protocol`; nothing here imports the service, and torch is
imported only in the user's process.
"""
