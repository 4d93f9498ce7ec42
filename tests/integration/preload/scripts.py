"""Training scripts of every kind, by name. Each must end, print and exit the same way forked as in a fresh process.

They print nothing that differs between two fresh runs (no numbers of processes, no times).
"""

from __future__ import annotations

from tests.integration.preload.support import Job

STATE = """
import builtins, ctypes, gc, json, locale, os, platform, resource, signal, site, stat, sys, sysconfig, tempfile, threading
import traceback, inspect, warnings, socket, multiprocessing.spawn, random, logging, time
def show(name, value):
    print(f"{name}: {value!r}")
show("argv", sys.argv)
show("orig_argv", sys.orig_argv)
show("path", sys.path)
show("flags", sys.flags)
for name in ("prefix exec_prefix base_prefix base_exec_prefix _base_executable executable pycache_prefix platlibdir "
             "warnoptions _xoptions dont_write_bytecode byteorder _stdlib_dir _home float_repr_style").split():
    show(name, getattr(sys, name, "absent"))
show("site", [site.PREFIXES, site.ENABLE_USER_SITE, site.USER_BASE, site.USER_SITE])
show("sysconfig", [sysconfig.get_paths(), sysconfig.get_config_var("prefix"), sysconfig.get_config_var("base")])
show("main", {k: str(v).partition(" at ")[0] for k, v in sorted(vars(sys.modules["__main__"]).items()) if k[0] == "_"})
show("stack", [(frame.filename, frame.function) for frame in inspect.stack()])
traceback.print_stack(file=sys.stdout)
show("builtins", sorted(vars(builtins)))
show("cwd", os.getcwd())
mask = os.umask(0); os.umask(mask); show("umask", oct(mask))
show("locale", [locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(), sys.getfilesystemencoding(),
                sys.getfilesystemencodeerrors(), sys.getdefaultencoding(), locale.getlocale()])
for stream in (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__):
    show(stream.name, [stream.encoding, stream.errors, stream.line_buffering, stream.write_through, stream.mode,
         stream.newlines, stream.fileno(), stream.isatty(), type(stream.buffer).__name__, stream.seekable(),
         stat.S_IFMT(os.fstat(stream.fileno()).st_mode)])
show("signals", {int(n): str(signal.getsignal(n)).partition(" at ")[0] for n in signal.valid_signals()})
show("mask", signal.pthread_sigmask(signal.SIG_BLOCK, []))
show("wakeup", signal.set_wakeup_fd(-1))
show("timers", [signal.getitimer(signal.ITIMER_REAL)])
show("descriptors", sorted(os.listdir("/proc/self/fd"))[:-1])
show("environ", sorted(os.environ.items()))
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
show("C environ", [libc.getenv(name.encode()) for name in sorted(os.environ)] + [libc.getenv(b"TRAINSHED_PRELOAD_PARENT")])
show("limits", [resource.getrlimit(n) for n in range(16)])
show("gc", [gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.garbage, len(gc.callbacks)])
show("threads", [t.name for t in threading.enumerate()] + os.listdir("/proc/self/task")[1:])
show("main thread", [threading.main_thread() is threading.current_thread(), threading.get_native_id() == os.getpid(),
     threading.main_thread().native_id == os.getpid()])
show("interpreter", [sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile(), sys.getdlopenflags(),
     sys.get_int_max_str_digits(), sys.get_asyncgen_hooks(), sys.is_finalizing()])
show("hooks", [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__,
     sys.unraisablehook is sys.__unraisablehook__, threading.excepthook is threading.__excepthook__, sys.breakpointhook is sys.__breakpointhook__])
show("ids", [os.getuid(), os.getgid(), os.getgroups(), os.geteuid()])
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines())
show("status", {k: v for k, v in status.items() if k in ("Name", "Umask", "NoNewPrivs", "Seccomp", "SigIgn", "SigCgt", "SigBlk",
     "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Threads", "SigPnd", "ShdPnd")})
show("kernel", [open("/proc/self/oom_score_adj").read(), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0),
     len(os.sched_getaffinity(0)), os.getppid(), os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()])
number = ctypes.c_int()
libc.prctl(2, ctypes.byref(number)); show("death signal", number.value)
show("dumpable", libc.prctl(3))
show("exe", os.readlink("/proc/self/exe"))
show("names", [socket.gethostname(), platform.node(), os.uname().nodename, platform.python_version()])
show("temporary", tempfile.gettempdir())
show("processes", [multiprocessing.get_start_method(True), multiprocessing.current_process().name,
     multiprocessing.process.ORIGINAL_DIR, multiprocessing.spawn.get_executable()])
show("loggers", [logging.root.handlers, logging.root.level, time.time() - logging._startTime < 60])
show("time zone", [time.tzname, time.timezone])
show("cache", sorted(p for p in sys.path_importer_cache if "preload" in p or "worker" in p))
show("ours", sorted(n for n in sys.modules if n.startswith("trainshed")))
show("readable", [os.access("/proc/self/environ", os.R_OK), open("/proc/self/maps").readline() != ""])
"""

_PLAIN: dict[str, str] = {
    "hello": "print('hello')",
    "empty": "",
    "exit 0": "import sys; print('a'); sys.exit(0)",
    "exit 3": "import sys; sys.exit(3)",
    "exit none": "import sys; sys.exit(None)",
    "exit text": "import sys; sys.exit('no data: ä')",
    "exit true": "raise SystemExit(True)",
    "exit 300": "import sys; sys.exit(300)",
    "exit object": "import sys; sys.exit([1, 2])",
    "exit by builtin": "exit(5)",
    "exit at once": "import os; print('x', end=''); os._exit(4)",
    "exception": "def f(x):\n    return 1 / x\n\ndef g():\n    f(0)\n\ng()\n",
    "chained": (
        "def f():\n    try:\n        {}['a']\n    except KeyError as e:\n        raise ValueError('worse') from e\n"
        "try:\n    f()\nfinally:\n    print('finally')\n"
    ),
    "exception group": "raise ExceptionGroup('two', [ValueError(1), TypeError('b')])",
    "notes": "e = RuntimeError('x')\ne.add_note('look here')\nraise e",
    "syntax error": "print('a')\ndef f(:\n    pass\n",
    "unindented": "if True:\nprint(1)\n",
    "no such module": "import no_such_module",
    "no such name": "printt('a')",
    "recursion": "import sys; sys.tracebacklimit = 3\ndef f(): f()\nf()",
    "assertion": "x = 3\nassert x == 4, f'{x} is not four'",
    "custom hook": "import sys\nsys.excepthook = lambda t, v, tb: print('hook', t.__name__, v)\n1 / 0",
    "keyboard interrupt": "raise KeyboardInterrupt",
    "SIGINT": "import os, signal, time\nprint('before')\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)",
    "SIGINT caught": (
        "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(30)\n"
        "except KeyboardInterrupt:\n    print('caught')"
    ),
    "SIGTERM": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "SIGTERM handled": (
        "import os, signal, sys\nsignal.signal(signal.SIGTERM, lambda n, f: sys.exit(9))\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nprint('not reached')"
    ),
    "SIGKILL": "import os\nprint('x', flush=True)\nos.kill(os.getpid(), 9)",
    "SIGSEGV": "import ctypes\nctypes.string_at(0)",
    "abort": "import os\nos.abort()",
    "SIGPIPE": (
        "import os\nr, w = os.pipe(); os.close(r)\ntry:\n    os.write(w, b'x')\nexcept BrokenPipeError as e:\n    print(e)"
    ),
    "alarm": (
        "import signal, time\ndef ring(n, f): raise TimeoutError('late')\nsignal.signal(signal.SIGALRM, ring)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.05)\ntime.sleep(30)"
    ),
    "fault handler": (
        "import faulthandler, sys\nfaulthandler.enable()\n"
        "def inner():\n    faulthandler.dump_traceback(sys.stdout, all_threads=False)\ninner()"
    ),
    "atexit": (
        "import atexit, sys\natexit.register(print, 'last')\n@atexit.register\ndef f(): print('first')\n"
        "print('body'); sys.exit(2)"
    ),
    "atexit fails": "import atexit\n@atexit.register\ndef f(): 1 / 0\nprint('body')",
    "non-daemon thread": (
        "import threading, time\ndef work():\n    time.sleep(0.3); print('thread')\n"
        "threading.Thread(target=work).start(); print('main')"
    ),
    "daemon thread": (
        "import threading, time\nt = threading.Thread(target=time.sleep, args=(60,), daemon=True); t.start()\nprint('main')"
    ),
    "thread fails": "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='w'); t.start(); t.join(); print('on')",
    "thread exits": "import sys, threading\nt = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()",
    "unraisable": "class A:\n    def __del__(self): raise ValueError('late')\na = A()\ndel a\nprint('on')",
    "finalization": "class A:\n    def __del__(self): print('end', __name__)\na = A()",
    "order of streams": (
        "import os, sys\nfor i in range(5):\n    print(i); print('e', i, file=sys.stderr); os.write(1, b'raw\\n')\n"
        "sys.stdout.write('open'); sys.stderr.write(' line\\n')"
    ),
    "odd text": "import sys\nprint('ä€𝄞 \\udc80'); sys.stdout.buffer.write(b'\\xff\\n'); print('\\ud800')",
    "much output": "for i in range(20000): print(i, 'x' * 60)",
    "no last newline": "print('a', end='')",
    "stdin": "import sys\nprint(repr(sys.stdin.read()))\ninput('? ')",
    "std closed": "import sys\nsys.stdout.close()\nprint('x')",
    "warning": "import warnings\nwarnings.warn('old')\nwarnings.warn('older', DeprecationWarning)\nwarnings.warn('u', UserWarning)",
    "warning below": (
        "import warnings\ndef f():\n    warnings.warn('at the caller', stacklevel=2)\n    warnings.warn('far', stacklevel=9)\nf()"
    ),
    "logging": (
        "import logging\nlogging.warning('plain')\nlogging.basicConfig(level='INFO', force=True, format='%(name)s %(message)s "
        "%(lineno)d %(filename)s %(processName)s %(threadName)s')\nlogging.info('formatted')"
    ),
    "main class pickled": (
        "import pickle\nclass A:\n    def __init__(self): self.x = 1\ndata = pickle.dumps(A())\n"
        "print(b'__main__' in data, pickle.loads(data).x, A.__module__, A)"
    ),
    "own source": (
        "import inspect, sys\ndef f(a, *, b=1):\n    return a\nclass A:\n    x = 1\nprint(inspect.getsource(f), inspect.getsource(A))\n"
        "print(inspect.signature(f), inspect.getfile(f), inspect.getmodule(f))\nprint(len(inspect.getsource(sys.modules['__main__'])))"
    ),
    "dataclass": (
        "from __future__ import annotations\nfrom dataclasses import dataclass\nimport typing\n@dataclass\nclass A:\n    x: int\n"
        "    y: list[A]\nprint(A(1, []), typing.get_type_hints(A), __annotations__)\nz: int = 1\nprint(__annotations__)"
    ),
    "doctest": 'import doctest\ndef f():\n    """\n    >>> f()\n    2\n    """\n    return 1\nprint(doctest.testmod())',
    "doc string": '"""About."""\nprint(__doc__, __name__, __file__, __package__, __spec__, __cached__, type(__loader__))',
    "runs a module": "import runpy, sys\nsys.argv = ['x', 'y']\nrunpy.run_module('platform', run_name='__main__')\nprint(__name__)",
    "child processes": (
        "import os, subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'import sys; print(sys.argv, sys.prefix, "
        "sys.path)', 'a'], capture_output=True, text=True))\nos.system('echo $0; env | sort | grep -v ^_=')\n"
        "print(subprocess.run('exit 7', shell=True).returncode)"
    ),
    "fork": (
        "import os\npid = os.fork()\nif pid == 0:\n    print('child', os.getppid() > 1); os._exit(3)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    ),
    "exec": "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'import sys; print(sys.orig_argv); sys.exit(6)'])",
    "pool": (
        "import multiprocessing as mp\ndef f(x): return x * x\nif __name__ == '__main__':\n"
        "    for way in ('fork', 'spawn', 'forkserver'):\n        with mp.get_context(way).Pool(2) as pool:\n"
        "            print(way, pool.map(f, range(5)))"
    ),
    "processes": (
        "import multiprocessing as mp, sys\ndef f(q):\n    q.put((mp.current_process().name, __name__, sys.argv)); sys.exit(4)\n"
        "if __name__ == '__main__':\n    for way in ('fork', 'spawn'):\n        c = mp.get_context(way); q = c.Queue()\n"
        "        p = c.Process(target=f, args=(q,)); p.start(); print(q.get()); p.join(); print(p.exitcode)"
    ),
    "process fails": (
        "import multiprocessing as mp\ndef f(): raise ValueError('in the child')\nif __name__ == '__main__':\n"
        "    p = mp.Process(target=f, name='P'); p.start(); p.join(); print(p.exitcode)"
    ),
    "manager and shared memory": (
        "import multiprocessing as mp\nfrom multiprocessing import shared_memory\ndef f(d, name):\n"
        "    m = shared_memory.SharedMemory(name); d['seen'] = bytes(m.buf[:3]); m.close()\nif __name__ == '__main__':\n"
        "    m = shared_memory.SharedMemory(create=True, size=16); m.buf[:3] = b'abc'\n    with mp.Manager() as manager:\n"
        "        d = manager.dict(); p = mp.Process(target=f, args=(d, m.name)); p.start(); p.join(); print(dict(d))\n"
        "    m.close(); m.unlink()"
    ),
    "executors": (
        "from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor\ndef f(x): return x + 1\nif __name__ == '__main__':\n"
        "    for kind in (ThreadPoolExecutor, ProcessPoolExecutor):\n        with kind(2) as pool: print(list(pool.map(f, range(4))))"
    ),
    "asyncio": (
        "import asyncio, os, signal\nasync def main():\n    loop = asyncio.get_running_loop(); done = asyncio.Event()\n"
        "    loop.add_signal_handler(signal.SIGUSR1, done.set)\n    os.kill(os.getpid(), signal.SIGUSR1)\n    await done.wait()\n"
        "    p = await asyncio.create_subprocess_exec('echo', 'sub', stdout=asyncio.subprocess.PIPE)\n"
        "    print((await p.communicate())[0], p.returncode)\n    print(await asyncio.to_thread(sum, [1, 2]))\n"
        "    server = await asyncio.start_server(lambda r, w: w.close(), 'localhost', 0)\n"
        "    r, w = await asyncio.open_connection(*server.sockets[0].getsockname()[:2]); print(await r.read())\nasyncio.run(main())"
    ),
    "asyncio interrupted": (
        "import asyncio, os, signal\nasync def main():\n    os.kill(os.getpid(), signal.SIGINT); await asyncio.sleep(30)\n"
        "try:\n    asyncio.run(main())\nexcept KeyboardInterrupt:\n    print('interrupted')"
    ),
    "finders": (
        "import importlib.util, sys\nprint([getattr(f, '__name__', type(f).__name__) for f in sys.meta_path], len(sys.path_hooks))\n"
        "print([importlib.util.find_spec(name) for name in ('sitecustomize', 'usercustomize', 'trainshed_worker.preload')])"
    ),
    "random numbers": (
        "import random, uuid, secrets, hashlib\nrandom.seed(7); print(random.random(), random.getrandbits(64))\n"
        "print(hashlib.sha256(b'a').hexdigest(), len(uuid.uuid4().hex), len(secrets.token_hex(4)))\n"
        "random.seed('text'); print(random.sample(range(100), 5))"
    ),
    "standard library": (
        "import sqlite3, ssl, zlib, lzma, decimal, zoneinfo, csv, email, http.client, urllib.request, xml.etree.ElementTree as x\n"
        "print(sqlite3.connect(':memory:').execute('select 1+1').fetchone(), ssl.create_default_context().check_hostname)\n"
        "print(decimal.Decimal(1) / 3, zoneinfo.ZoneInfo('UTC'), zlib.crc32(b'a'), x.fromstring('<a b=\"1\"/>').attrib)"
    ),
    "garbage": (
        "import gc, weakref\nclass A: pass\na = A(); a.me = a; r = weakref.ref(a); del a\ngc.collect(); print(r(), gc.isenabled())\n"
        "gc.callbacks.append(lambda phase, info: print(phase)); gc.collect(); gc.callbacks.clear()\n"
        "print(any(type(o) is A for o in gc.get_objects()))"
    ),
    "trace": (
        "import sys\nseen = []\ndef t(frame, event, arg): seen.append((event, frame.f_code.co_name)); return t\n"
        "def f(): return 1\nsys.settrace(t); f(); sys.settrace(None); print(seen)"
    ),
    "files": (
        "import os, tempfile\nwith tempfile.NamedTemporaryFile() as f: print(os.path.dirname(f.name), oct(os.stat(f.name).st_mode))\n"
        "open('made', 'w').close(); print(oct(os.stat('made').st_mode), os.stat('made').st_uid, os.open('made', os.O_RDONLY))\n"
        "for path in ('/etc/shadow', '/opt/ml/../../root'):\n    try: print(os.listdir(path) if 'root' in path else open(path).read())\n"
        "    except OSError as e: print(e)"
    ),
    "deep stack": "import sys\nsys.setrecursionlimit(50000)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)\nprint(f(20000))",
    "debugger": "import pdb\npdb.set_trace()\nprint('after')",
}


def light() -> dict[str, Job]:
    """Scripts without torch."""
    jobs = {name: Job(script) for name, script in _PLAIN.items()}
    jobs["state"] = Job(
        STATE, arguments=["--lr", "0.1", "ä b", ""], env={"TZ": "Asia/Tokyo", "EMPTY": "", "TEXT": "ä\n=b"}
    )
    jobs["in a folder"] = Job(
        "import helper, os, sys\nfrom package import inner\nprint(helper.x, inner.y, sys.path[0], __file__, os.getcwd())\n"
        "import top\nprint(top.__file__)\nfrom . import helper",
        {"sub/helper.py": "x = 1", "sub/package/inner.py": "y = 2", "top.py": ""},
        name="sub/train it.py",
    )
    jobs["a helper fails"] = Job(
        "import helper\nhelper.run()", {"helper.py": "def run():\n    raise OSError(5, 'no', 'f')\n"}
    )
    jobs["a helper has an error"] = Job("import helper", {"helper.py": "x = = 1\n"})
    jobs["a package's data"] = Job(
        "import importlib.resources as r, pkgutil\nprint(r.files('package').joinpath('a.txt').read_text())\n"
        "print([m.name for m in pkgutil.iter_modules(['/opt/ml/code'])])",
        {"package/__init__.py": "", "package/a.txt": "data"},
    )
    jobs["a folder named like a module"] = Job("import json\nprint(json.__name__)", {"json/data.txt": "x"})
    jobs["coded source"] = Job("# -*- coding: latin-1 -*-\nprint(len('\xe4'))")
    return jobs
