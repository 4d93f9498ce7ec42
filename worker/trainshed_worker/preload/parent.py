"""The preloaded parent: an interpreter that stopped at its start, with torch imported, and is forked for each instance.

Invariants: it holds no secret, no file and no data of anybody, runs nothing of a user and never a tensor operation; it
has one thread whenever it forks. It ends when its agent does. What it forks is a supervisor (see `sandbox.zygote`),
whose own forks become the training processes.
"""

import gc
import importlib
import json
import os
import socket
import sys
import time
import traceback

from trainshed_worker.preload import ending, hugepages, interpreter, modules, rendezvous, script
from trainshed_worker.preload.eligibility import Checker
from trainshed_worker.preload.facts import VARIABLE, ParentFacts
from trainshed_worker.sandbox import continuation, zygote
from trainshed_worker.sandbox.spec import Command


def main(startup: frozenset[str]) -> None:
    """Import, say so, serve; returns only in a process that is to run a script. `startup` names the modules that every
    interpreter of this environment has loaded by now."""
    facts = ParentFacts.from_json(os.environ.pop(VARIABLE))
    for target in (1, 2):  # sys.stdout and sys.stderr were made for a pipe, which is what a command's output is
        os.dup2(facts.log, target)
    os.close(facts.log)
    ending.keep()
    command = _serve(facts, startup)
    script.go_on(command, facts)


def _serve(facts: ParentFacts, startup: frozenset[str]) -> Command:
    channel = socket.socket(fileno=facts.channel)
    try:
        checker = Checker(facts, _preload(facts, startup))
        continuation.offer(checker.why_fresh)
        os.setpriority(os.PRIO_PROCESS, 0, facts.niceness)
        channel.send(json.dumps({"ready": True}).encode())
        zygote.serve(channel)
    except continuation.Script as found:
        channel.detach()  # the number was closed after the fork and may be another's by now
        return found.command
    except BaseException:  # noqa: BLE001 (the last frame of a process: whatever it was goes to its log)
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _preload(facts: ParentFacts, startup: frozenset[str]) -> frozenset[str]:
    """Import; returns the top-level names that a script finds loaded and would not in a fresh interpreter."""
    begin = time.monotonic()
    if not interpreter.is_supported():
        raise RuntimeError(f"scripts cannot go on in a fork of Python {sys.version}")
    for name in facts.modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            print(f"{name} is not in this environment", flush=True)
    rendezvous.hurry()
    ending.remember(startup)
    script.remember_ours()
    modules.remember()
    gc.collect()
    pages = hugepages.collapse()
    print(f"ready after {time.monotonic() - begin:.1f} s, {pages} huge pages", flush=True)
    loaded = {name.partition(".")[0] for name in set(sys.modules) - startup}
    return frozenset(loaded - {"trainshed_worker"} - set(sys.builtin_module_names))
