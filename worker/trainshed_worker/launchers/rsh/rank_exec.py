"""Between mpirun and the user's script: gives torch's names to mpirun's numbers, then becomes the script.

mpirun tags and passes on whatever one read of a rank's output gives it. Unbuffered Python writes a line and its end
apart, so that lines of two ranks run into each other; on the terminal that mpirun gives each rank, Python sends whole
lines by itself.
"""

import os
import sys

NAMES = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}


def main() -> None:
    for name, source in NAMES.items():
        os.environ[name] = os.environ[source]
    node = int(os.environ["RANK"]) // int(os.environ["LOCAL_WORLD_SIZE"])
    os.environ["GROUP_RANK"] = os.environ["NODE_RANK"] = str(node)
    os.environ.pop("TRAINSHED_GANG_SECRET", None)
    if os.isatty(1):
        os.environ.pop("PYTHONUNBUFFERED", None)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
