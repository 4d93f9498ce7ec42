"""Run by the `site` module of a preloaded parent (a `.pth` file of the parent's own environment executes this file).

Invariant: nothing is done before the interpreter looks for `sitecustomize`, its last step before it runs the script. By
then it is as every other interpreter of this environment; there the parent imports and waits, and each fork that is to
run a script goes on with the interpreter's own start: sitecustomize, then the script, with no frame of ours below it.
"""

import sys
from pathlib import Path


class _AtTheEndOfSite:
    """A finder that finds nothing; asked for sitecustomize, it is the parent's life."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name != "sitecustomize":
            return
        sys.meta_path.remove(self)
        startup = frozenset(sys.modules)
        sys.path.insert(0, str(Path(__file__).parents[2]))
        from trainshed_worker.preload.parent import main

        main(startup)


# `site` may come to this file twice, by two names of a folder: a second finder would stay, for the jobs to meet.
if _AtTheEndOfSite.__name__ not in [type(finder).__name__ for finder in sys.meta_path]:
    sys.meta_path.insert(0, _AtTheEndOfSite())
