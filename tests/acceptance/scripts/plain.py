"""A plain SageMaker script, no torch: says what it sees, reads its channel, writes a model and some output."""

import argparse
import json
import os
import pathlib
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--fail", default="")
parser.add_argument("--lines", type=int, default=0)
arguments, unknown = parser.parse_known_args()

host = os.environ["SM_CURRENT_HOST"]
print(f"hello from {host} of {os.environ['SM_HOSTS']} argv={json.dumps(sys.argv[1:])}", flush=True)
channel = os.environ.get("SM_CHANNEL_TRAIN")
if channel:
    names = sorted(str(p.relative_to(channel)) for p in pathlib.Path(channel).rglob("*") if p.is_file())
    print(f"channel train on {host}: {json.dumps(names)}", flush=True)
for epoch in range(arguments.epochs):
    print(f"epoch={epoch} loss={1.0 / (epoch + 1):.4f};", flush=True)
for number in range(arguments.lines):
    print(f"line {number} of {host}")
print(f"a line on stderr of {host}", file=sys.stderr, flush=True)
if arguments.fail and host == arguments.fail:
    raise ValueError("the data has no column 'label'")
model = pathlib.Path(os.environ["SM_MODEL_DIR"])
(model / f"model-{host}.json").write_text(json.dumps({"host": host, "epochs": arguments.epochs}))
pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], f"report-{host}.txt").write_text("done\n")
