"""`make lock`: write requirements/constraints.txt, the versions of all that is installed in .venv now.

Left out: Trainshed itself, pip and setuptools, and torch, whose build (`+cpu` or CUDA) install.py chooses.
"""

import sys
from importlib.metadata import distributions
from pathlib import Path

LEFT_OUT = {"trainshed", "pip", "setuptools", "torch", "wheel"}
TARGET = Path(__file__).resolve().parent.parent / "requirements" / "constraints.txt"
HEADER = "# Versions that are installed and tested together. Written by `make lock`; do not edit.\n"


def main() -> int:
    versions: dict[str, str] = {}
    for distribution in distributions():
        name = distribution.metadata["Name"].lower().replace("_", "-").replace(".", "-")
        if name not in LEFT_OUT and not name.startswith(("nvidia-", "cuda-", "triton")):
            versions[name] = distribution.version
    TARGET.write_text(HEADER + "".join(f"{name}=={version}\n" for name, version in sorted(versions.items())))
    print(f"{len(versions)} versions in {TARGET.relative_to(Path.cwd())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
