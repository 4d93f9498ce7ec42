"""`make screenshots`: each view of the dashboard in light and dark, for a phone and a desk, with real jobs
of an installation that it starts and ends. Written to `.trainshed/screenshots/`; to be looked at by a person.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.jobs import run_script, wait_for_end, wait_for_line, wait_for_status
from tests.support.stack import Stack
from tests.support.tools import find_tool
from tests.support.wait import wait_until

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / ".trainshed" / "screenshots"
SIZES = {"390": (390, 844), "1280": (1280, 800)}
SCHEMES = ("light", "dark")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
METRICS = [
    {"Name": "train:loss", "Regex": "loss=([0-9.]+)"},
    {"Name": "train:tokens_per_second", "Regex": "tokens/s=([0-9.]+)"},
]
TRAIN = """
import math, os, random, sys, time
steps, pause = int(sys.argv[sys.argv.index("--steps") + 1]), float(sys.argv[sys.argv.index("--pause") + 1])
host = os.environ["SM_CURRENT_HOST"]
print(f"\\x1b[1m{host}\\x1b[0m: 124,439,808 parameters, \\x1b[32mbf16\\x1b[0m", flush=True)
for step in range(steps):
    loss = 3.2 * math.exp(-step / 60) + 0.4 + random.random() / 8
    print(f"step={step} loss={loss:.4f} tokens/s={17500 + random.randint(0, 900)}", flush=True)
    if step % 25 == 24:
        print(f"\\x1b[33mwarning\\x1b[0m: gradient norm {random.random() * 4:.2f} was clipped to 1.0", flush=True)
    time.sleep(pause)
with open("/opt/ml/model/weights.txt", "w") as file:
    file.write("weights")
"""
BROKEN = """
import time
print("loading the checkpoint", flush=True)
time.sleep(0.3)
state = {"layers.0.weight": (1024, 4096)}
raise RuntimeError("size mismatch for layers.0.weight: the checkpoint has (1024, 4096), the model has (1024, 2048)")
"""


def start_jobs(stack: Stack) -> None:
    """One job in every state, a warm pool, and two that wait; returns when all are there."""

    def start(name: str, program: str = "train.py", steps: int = 60, pause: float = 0.02, **more: object) -> None:
        parameters = {"steps": str(steps), "pause": str(pause)}
        run_script(
            stack,
            stack.bucket,
            name,
            {"train.py": TRAIN, "broken.py": BROKEN},
            program,
            hyperparameters=parameters,
            Tags=[{"Key": "team", "Value": "language"}],
            AlgorithmSpecification={
                "TrainingImage": "pytorch-training:2.2.0-cpu-py310",
                "TrainingInputMode": "File",
                "MetricDefinitions": METRICS,
            },
            **more,  # type: ignore[arg-type]
        )

    def warm(count: int) -> dict[str, object]:
        return {
            "InstanceType": "ml.c5.xlarge",
            "InstanceCount": count,
            "VolumeSizeInGB": 50,
            "KeepAlivePeriodInSeconds": 3000,
        }

    drain_one(stack)
    start("tokenizer-baseline")
    start("checkpoint-import", "broken.py")
    for name in ("tokenizer-baseline", "checkpoint-import"):
        wait_for_end(stack, name)
    start("gpt-124m-warmup", ResourceConfig=warm(1))
    wait_for_end(stack, "gpt-124m-warmup")
    start("gpt-124m-pretrain", steps=100_000, pause=0.4, count=2, max_runtime=36_000)
    wait_for_line(stack, "gpt-124m-pretrain", "step=20", timeout=180)
    start("abandoned-sweep-7", steps=100_000, pause=0.4)
    wait_for_status(stack, "abandoned-sweep-7", {"InProgress"})
    wait_for_line(stack, "abandoned-sweep-7", "step=3")
    stack.trainshed("stop", "abandoned-sweep-7")
    wait_for_end(stack, "abandoned-sweep-7")
    start("mixture-of-experts-8x", count=4, max_runtime=86_400)
    start("evaluation-after-pretrain", count=3)
    wait_until(lambda: '"Available"' in stack.trainshed("pools", "--json").stdout, timeout=20, what="the warm pool")


def drain_one(stack: Stack) -> None:
    """A node that is to be mended."""
    headers = {"Authorization": f"Bearer {stack.env['TRAINSHED_TOKEN']}"}
    answer = httpx.get(stack.env["AWS_ENDPOINT_URL"] + "/v1/nodes", headers=headers, timeout=30)
    stack.trainshed("drain", answer.raise_for_status().json()["nodes"][-1]["id"])


def views(stack: Stack, page: Page, base: str) -> dict[str, str]:
    """Name → path."""
    page.goto(base + "/nodes")
    node = page.locator(".slot-name").first.get_attribute("href")
    assert node is not None
    jobs = {
        "waiting": "mixture-of-experts-8x",
        "running": "gpt-124m-pretrain",
        "completed": "tokenizer-baseline",
        "failed": "checkpoint-import",
        "stopped": "abandoned-sweep-7",
    }
    return {
        "jobs": "/jobs",
        "jobs-filtered": f"/jobs?status=failed&status=stopped&q={quote('e')}",
        "jobs-nothing": "/jobs?q=absent",
        **{f"job-{state}": f"/jobs/{name}" for state, name in jobs.items()},
        "log-running": "/jobs/gpt-124m-pretrain/log",
        "log-failed": "/jobs/checkpoint-import/log",
        "new-job": "/new-job",
        "clone": "/new-job?from=gpt-124m-pretrain",
        "nodes": "/nodes",
        "node": node,
        "pools": "/pools",
        "pool": "/pools/gpt-124m-warmup",
        "queue": "/queue",
        "error": "/jobs/no-such-job",
    }


def take(browser: Browser, stack: Stack, only: str) -> int:
    base = stack.env["AWS_ENDPOINT_URL"]
    count = 0
    for width, (wide, high) in SIZES.items():
        context = browser.new_context(viewport={"width": wide, "height": high})
        page = context.new_page()
        page.set_default_timeout(60_000)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            if only in "login":
                page.goto(base + "/login?next=/jobs")
                page.screenshot(path=OUT / f"login-{width}-{scheme}.png")
                count += 1
        page.goto(stack.trainshed("dashboard").stdout.strip().splitlines()[-1].split()[-1])
        page.wait_for_url("**/jobs")
        for name, path in views(stack, page, base).items():
            if only not in name:
                continue
            page.emulate_media(color_scheme="light")
            page.goto(base + path)
            page.wait_for_load_state("load")
            page.wait_for_timeout(1_500)  # lines and countdowns come by script
            for scheme in SCHEMES:
                page.emulate_media(color_scheme=scheme)
                page.screenshot(path=OUT / f"{name}-{width}-{scheme}.png", full_page=not name.startswith("log-"))
                count += 1
        context.close()
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="views whose name has this in it")
    options = parser.parse_args()
    chromium = find_tool("chromium")
    if chromium is None:
        print("no chromium here; install Debian's package: apt-get install chromium", file=sys.stderr)
        return 1
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trainshed-screenshots-") as folder:
        settings = {"TRAINSHED_RECLAIM_WARM_AFTER_SECONDS": "-1"}  # or the job that waits would have the pool ended
        stack = Stack.up(Path(folder) / "home", "--nodes", "5", settings=settings)
        try:
            start_jobs(stack)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
                count = take(browser, stack, options.only)
                browser.close()
        finally:
            stack.down()
    print(f"{count} pictures in {OUT.relative_to(ROOT)} after {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
