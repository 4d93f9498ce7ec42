"""`make cluster`: PostgreSQL, the object store, the service and two workers in containers, and a job on both workers.

    python scripts/cluster.py up [--workers N] [--no-build] [--no-demo] [--project NAME]
    python scripts/cluster.py down [--project NAME]

Secrets are made once, files of `.trainshed/cluster/secrets` that docker-compose.yml names; `env.sh` beside them points
AWS clients of this machine at the cluster. Another project than `trainshed` has a folder of its own, `.trainshed/NAME`,
and can run beside it on other ports (TRAINSHED_PORT, TRAINSHED_GATEWAY_PORT). `down` removes containers, volumes,
networks and secrets; only the images stay. May be run again at any time, also after it was broken off. Exit code 0 only
where every check held.
"""

import argparse
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import base_images
import demo

ROOT = Path(__file__).resolve().parent.parent
PROJECT, FOLDER = "trainshed", ROOT / ".trainshed" / "cluster"
HOME_INSIDE = "/var/lib/trainshed"
UP_SECONDS = 180.0

console = demo.console


class ClusterError(Exception):
    """What is missing or failed, in words."""


@dataclass(frozen=True)
class Cluster:
    project: str
    program: list[str]
    """Compose, without options."""

    @property
    def folder(self) -> Path:
        return FOLDER if self.project == PROJECT else FOLDER.with_name(self.project)

    @property
    def secrets(self) -> Path:
        return self.folder / "secrets"

    @property
    def env(self) -> Path:
        return self.folder / "env.sh"

    @property
    def compose(self) -> list[str]:
        files = ["--project-directory", str(ROOT), "--file", str(ROOT / "docker-compose.yml")]
        return [*self.program, "--project-name", self.project, *files]

    @property
    def typed(self) -> str:
        """Compose as one types it in the project's folder."""
        return f"{' '.join(self.program)} -p {self.project}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up")
    up.add_argument("--workers", type=int, default=2)
    up.add_argument("--no-build", action="store_true", help="take the images that are there")
    up.add_argument("--no-demo", action="store_true", help="start only")
    down = commands.add_parser("down")
    for command in (up, down):
        command.add_argument("--project", default=PROJECT, help="the name that Compose gives to what belongs together")
    options = parser.parse_args()
    try:
        cluster = Cluster(options.project, compose_program())
        os.environ["TRAINSHED_CLUSTER_SECRETS"] = str(cluster.secrets)  # docker-compose.yml names it
        if options.command == "down":
            take_down(cluster)
        else:
            bring_up(cluster, options)
    except (ClusterError, base_images.ImageError, demo.DemoError) as error:
        console.print(f"[red]failed:[/] {error}")
        return 1
    return 0


def compose_program() -> list[str]:
    """Compose as a plugin of docker, or the older program. Raises ClusterError where no engine answers."""
    if shutil.which("docker") is None:
        raise ClusterError("there is no `docker` on this machine; `make demo` needs none")
    answer = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise ClusterError(f"no container engine answers: {answer.stderr.strip()[-300:]}")
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    raise ClusterError("there is no docker compose; install the package docker-compose, or Docker's compose plugin")


def make_secrets(cluster: Cluster) -> None:
    """Each once. The folder is closed to others; the files are open, since containers read them as other users."""
    folder = cluster.secrets
    folder.mkdir(parents=True, exist_ok=True)
    cluster.folder.chmod(0o700)
    password = secret(folder / "postgres_password", secrets.token_urlsafe(24))
    secret(folder / "trainshed_database_url", f"postgresql+psycopg://trainshed:{password}@postgres/trainshed")
    secret(folder / "trainshed_store_access_key", "TS" + secrets.token_hex(9).upper())
    secret(folder / "trainshed_store_secret_key", secrets.token_hex(20))
    secret(folder / "trainshed_enrollment_token", "tse_" + secrets.token_urlsafe(32))


def secret(path: Path, value: str) -> str:
    if not path.exists():
        fresh = path.with_name(f"{path.name}.new")
        fresh.write_text(value)
        fresh.chmod(0o444)
        fresh.rename(path)
    return path.read_text()


def run(command: list[str], what: str) -> None:
    if subprocess.run(command, check=False).returncode != 0:
        raise ClusterError(f"{what} failed; the command was\n  {shlex.join(command)}")


def bring_up(cluster: Cluster, options: argparse.Namespace) -> None:
    started = time.monotonic()
    console.rule("[bold]Trainshed cluster[/]")
    make_secrets(cluster)
    if not options.no_build:
        base_images.bring_all()
        for target in ("service", "worker"):
            command = ["docker", "build", "--network", "host", "--target", target, "--tag", f"trainshed-{target}"]
            run([*command, str(ROOT)], f"the build of the image trainshed-{target}")
        console.print(f"images built in {time.monotonic() - started:.0f} s")
    begun = time.monotonic()
    run([*cluster.compose, "up", "--detach", "--scale", f"worker={options.workers}"], "the start")
    point_clients_here(cluster)
    wait_for_nodes(options.workers)
    up_seconds = time.monotonic() - begun
    console.print(f"{options.workers} workers have joined after {up_seconds:.0f} s")
    if not options.no_demo:
        demo.run_job(up_seconds, begun, log_in=f"{cluster.typed} exec service trainshed dashboard")
    next_steps(cluster)


def point_clients_here(cluster: Cluster) -> None:
    """The lines of `trainshed env`, for this machine and in this process: the ports are the same inside and outside."""
    exec_service = [*cluster.compose, "exec", "-T", "service"]
    lines = subprocess.run([*exec_service, "trainshed", "env"], capture_output=True, text=True, check=False)
    config = subprocess.run(
        [*exec_service, "cat", f"{HOME_INSIDE}/sagemaker-config.yaml"], capture_output=True, check=False
    )
    if lines.returncode != 0 or config.returncode != 0:
        raise ClusterError(f"the service does not tell how to reach it: {(lines.stderr or str(config.stderr))[-500:]}")
    (cluster.folder / "sagemaker-config.yaml").write_bytes(config.stdout)
    text = lines.stdout.replace(HOME_INSIDE, str(cluster.folder))
    cluster.env.touch(mode=0o600)
    cluster.env.write_text(text)
    demo.load_environment(["cat", str(cluster.env)])


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


def take_down(cluster: Cluster) -> None:
    # Compose reads the files that it names even to remove what uses them.
    make_secrets(cluster)
    run([*cluster.compose, "down", "--volumes", "--remove-orphans"], "the removal")
    shutil.rmtree(cluster.folder)
    console.print("the cluster is gone: containers, volumes, networks and secrets")


def next_steps(cluster: Cluster) -> None:
    console.rule("[bold]it works[/]")
    shown = os.path.relpath(cluster.env)
    console.print(f"  . {shown}      # AWS clients of this shell talk to the cluster", markup=False)
    console.print(f"  {cluster.typed} logs -f worker")
    console.print(f"  {cluster.typed} up -d --scale worker=4")
    ending = "make cluster-down" if cluster.project == PROJECT else f"{sys.argv[0]} down --project {cluster.project}"
    console.print(f"  {ending}      # remove it all", markup=False)


if __name__ == "__main__":
    sys.exit(main())
