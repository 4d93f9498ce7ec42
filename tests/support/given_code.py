"""A module for fork servers whose `main` runs the code that it is given."""

import sys


def main() -> int:
    exec(sys.argv[1], {"__name__": "given"})
    return 0
