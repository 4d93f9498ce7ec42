"""`make cluster`: PostgreSQL, the object store, the service and two workers in containers, and a job on both workers.

    python scripts/cluster.py up [--workers N] [--no-build] [--no-demo]
    python scripts/cluster.py down

Secrets are made once, files of `.trainshed/cluster/secrets` that docker-compose.yml names; `env.sh` beside them points
AWS clients of this machine at the cluster. `down` removes containers, volumes, networks and secrets; only the
images stay. May be run again at any time, also after it was broken off. Exit code 0 only where every check held.
"""

import argparse
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import demo

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".trainshed" / "cluster"
SECRETS = FOLDER / "secrets"
ENV = FOLDER / "env.sh"
PROJECT = "trainshed"
HOME_INSIDE = "/var/lib/trainshed"
UP_SECONDS = 180.0

console = demo.console


class ClusterError(Exception):
    """What is missing or failed, in words."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up")
    up.add_argument("--workers", type=int, default=2)
    up.add_argument("--no-build", action="store_true", help="take the images that are there")
    up.add_argument("--no-demo", action="store_true", help="start only")
    commands.add_parser("down")
    options = parser.parse_args()
    try:
        compose = compose_command()
        if options.command == "down":
            take_down(compose)
        else:
            bring_up(compose, options)
    except (ClusterError, demo.DemoError) as error:
        console.print(f"[red]failed:[/] {error}")
        return 1
    return 0


def compose_command() -> list[str]:
    """Compose as a plugin of docker, or the older program. Raises ClusterError where no engine answers."""
    if shutil.which("docker") is None:
        raise ClusterError("there is no `docker` on this machine; `make demo` needs none")
    answer = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise ClusterError(f"no container engine answers: {answer.stderr.strip()[-300:]}")
    base = ["--project-name", PROJECT, "--project-directory", str(ROOT), "--file", str(ROOT / "docker-compose.yml")]
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose", *base]
    if shutil.which("docker-compose"):
        return ["docker-compose", *base]
    raise ClusterError("there is no docker compose; install the package docker-compose, or Docker's compose plugin")


def make_secrets() -> None:
    """Each once. The folder is closed to others; the files are open, since containers read them as other users."""
    SECRETS.mkdir(parents=True, exist_ok=True)
    FOLDER.chmod(0o700)
    password = secret("postgres_password", secrets.token_urlsafe(24))
    secret("trainshed_database_url", f"postgresql+psycopg://trainshed:{password}@postgres/trainshed")
    secret("trainshed_store_access_key", "TS" + secrets.token_hex(9).upper())
    secret("trainshed_store_secret_key", secrets.token_hex(20))
    secret("trainshed_enrollment_token", "tse_" + secrets.token_urlsafe(32))


def secret(name: str, value: str) -> str:
    path = SECRETS / name
    if not path.exists():
        fresh = path.with_name(f"{name}.new")
        fresh.write_text(value)
        fresh.chmod(0o444)
        fresh.rename(path)
    return path.read_text()


def run(command: list[str], what: str) -> None:
    if subprocess.run(command, check=False).returncode != 0:
        raise ClusterError(f"{what} failed; the command was\n  {shlex.join(command)}")


def bring_up(compose: list[str], options: argparse.Namespace) -> None:
    started = time.monotonic()
    console.rule("[bold]Trainshed cluster[/]")
    make_secrets()
    if not options.no_build:
        for target in ("service", "worker"):
            command = ["docker", "build", "--network", "host", "--target", target, "--tag", f"trainshed-{target}"]
            run([*command, str(ROOT)], f"the build of the image trainshed-{target}")
        console.print(f"images built in {time.monotonic() - started:.0f} s")
    begun = time.monotonic()
    run([*compose, "up", "--detach", "--scale", f"worker={options.workers}"], "the start")
    point_clients_here(compose)
    wait_for_nodes(options.workers)
    up_seconds = time.monotonic() - begun
    console.print(f"{options.workers} workers have joined after {up_seconds:.0f} s")
    if not options.no_demo:
        demo.run_job(up_seconds, begun, log_in=f"{short(compose)} exec service trainshed dashboard")
    next_steps(compose)


def short(compose: list[str]) -> str:
    """Compose as one types it in the project's folder."""
    program = "docker compose" if compose[1] == "compose" else compose[0]
    return f"{program} -p {PROJECT}"


def point_clients_here(compose: list[str]) -> None:
    """The lines of `trainshed env`, for this machine and in this process: the ports are the same inside and outside."""
    exec_service = [*compose, "exec", "-T", "service"]
    lines = subprocess.run([*exec_service, "trainshed", "env"], capture_output=True, text=True, check=False)
    config = subprocess.run(
        [*exec_service, "cat", f"{HOME_INSIDE}/sagemaker-config.yaml"], capture_output=True, check=False
    )
    if lines.returncode != 0 or config.returncode != 0:
        raise ClusterError(f"the service does not tell how to reach it: {(lines.stderr or str(config.stderr))[-500:]}")
    (FOLDER / "sagemaker-config.yaml").write_bytes(config.stdout)
    text = lines.stdout.replace(HOME_INSIDE, str(FOLDER))
    ENV.touch(mode=0o600)
    ENV.write_text(text)
    demo.load_environment(["cat", str(ENV)])


def wait_for_nodes(workers: int) -> None:
    deadline = time.monotonic() + UP_SECONDS
    while (free := demo.rest("/v1/nodes")["nodes"]) is not None:
        ready = [node for node in free if str(node["state"]).lower() in ("free", "leased", "warm")]
        if len(ready) >= workers:
            return
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{len(ready)} of {workers} workers have joined in {UP_SECONDS:.0f} s; see `docker logs`"
            )
        time.sleep(1)


def take_down(compose: list[str]) -> None:
    # Compose reads the files that it names even to remove what uses them.
    make_secrets()
    run([*compose, "down", "--volumes", "--remove-orphans"], "the removal")
    shutil.rmtree(FOLDER)
    console.print("the cluster is gone: containers, volumes, networks and secrets")


def next_steps(compose: list[str]) -> None:
    console.rule("[bold]it works[/]")
    shown = os.path.relpath(ENV)
    console.print(f"  . {shown}      # AWS clients of this shell talk to the cluster", markup=False)
    console.print(f"  {short(compose)} logs -f worker")
    console.print(f"  {short(compose)} up -d --scale worker=4")
    console.print("  make cluster-down      # remove it all", markup=False)


if __name__ == "__main__":
    sys.exit(main())
