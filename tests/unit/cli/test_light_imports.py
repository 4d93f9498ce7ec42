"""`eval "$(trainshed env)"` stands in shell profiles: the command line loads no database and no AWS client for it."""

import subprocess
import sys

HEAVY = ("sqlalchemy", "alembic", "boto3", "botocore", "fastapi", "torch")


def test_env_up_and_down_load_nothing_heavy():
    script = (
        "import sys, trainshed_service.cli.app, trainshed_service.cli.life\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
