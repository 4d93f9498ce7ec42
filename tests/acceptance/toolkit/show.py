"""Prints what a script finds, one JSON line, so that two ways to start it can be compared."""

import json
import os
import sys
from pathlib import Path

config = Path("/opt/ml/input/config")
found = {
    "host": os.environ["SM_CURRENT_HOST"],
    "argv": sys.argv[1:],
    "variables": {name: value for name, value in os.environ.items() if name.startswith("SM_")},
    "files": sorted(path.name for path in config.iterdir()),
    "channel": sorted(path.name for path in Path(os.environ["SM_CHANNEL_TRAIN"]).iterdir()),
    "resources": json.loads((config / "resourceconfig.json").read_text()),
}
Path(os.environ["SM_MODEL_DIR"], f"{found['host']}.json").write_text(json.dumps(found))
print("FOUND " + json.dumps(found, sort_keys=True), flush=True)
