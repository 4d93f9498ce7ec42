"""The requirements of Trainshed and of the extras that are named, a line each, from the pyproject.toml beside it.

    python3 requirements_of.py EXTRA… [--without NAME]…

For the images, which install the libraries before the sources are there.
"""

import argparse
import re
import sys
import tomllib
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*")
    parser.add_argument("--without", action="append", default=[])
    arguments = parser.parse_args()
    here = Path(__file__).resolve().parent
    file = next(folder / "pyproject.toml" for folder in (here, here.parent) if (folder / "pyproject.toml").is_file())
    project = tomllib.loads(file.read_text())["project"]
    lines = list(project["dependencies"])
    for extra in arguments.extras:
        lines += project["optional-dependencies"][extra]
    for line in dict.fromkeys(lines):
        name = re.match(r"[A-Za-z0-9._-]+", line)
        if name is not None and name[0] not in arguments.without:
            print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
