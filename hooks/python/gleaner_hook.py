"""Calls Gleaner's hooks from a farm manager's own Python.

Nothing here raises and nothing here lasts: what is missing, broken or hung is given up, for a
render must never wait for it. It needs the standard library only and runs under Python 2.7, which
some managers embed, and 3.

The hooks are the scripts `preflight` and `postflight` beside this file; they find the program and
its settings (/etc/gleaner/hook.env), and end within two seconds themselves.
"""

import os
import re
import subprocess
import threading

# How long a call may take, in seconds: the scripts' own limit and a little.
LIMIT_S = 3.0
# Where preflight and postflight are.
FOLDER = os.path.dirname(os.path.abspath(__file__))
# Longest name of a booking, in bytes.
NAME_MAX = 128

# What of this process's environment the scripts may see: no settings of a render.
_KEPT = ("LANG", "TZ")


def booking(farm, *parts):
    """The name of a render attempt: always one that the hook takes, never two that are one."""
    text = ".".join(_text(part) for part in parts)
    clean = re.sub(r"[^A-Za-z0-9._@:-]", "+", text)
    name = "%s:%s" % (farm, clean)
    if clean != text or len(name) > NAME_MAX:
        name = "%s+%016x" % (name[: NAME_MAX - 17], _fingerprint(text))
    return name


def _fingerprint(text):
    """FNV-1a: what the program itself adds to the same name."""
    value = 0xCBF29CE484222325
    for byte in bytearray(text.encode("utf-8", "replace")):
        value = ((value ^ byte) * 0x100000001B3) % (1 << 64)
    return value


def preflight(name, cores=None, memory_mib=None, gpus=None, process=None):
    """Frees the host's cores for a render. Without `cores` that is all of them.

    With `process`, the render's process number, the booking ends with that process.
    """
    variables = {"GLEANER_BOOKING": name}
    for variable, value in (
        ("GLEANER_CORES", cores),
        ("GLEANER_MEMORY_MIB", memory_mib),
        ("GLEANER_GPUS", gpus),
    ):
        if value is not None:
            variables[variable] = value
    return _call("preflight", variables, process)


def postflight(name, process=None, failed=None, if_booked=False):
    """Says that a render has ended; with `process`, that it does when that process ends.

    `failed` is whether it failed by itself, where that is known: one that was ended is neither.
    With `if_booked` there may have been no preflight, and the next one books all the same.
    """
    variables = {"GLEANER_BOOKING": name}
    if failed is not None:
        variables["GLEANER_FAILED"] = "1" if failed else "0"
    return _call("postflight", variables, process, ("--if-booked",) if if_booked else ())


def _call(script, variables, process, options=()):
    """True where the script has run to its end in time. Never raises."""
    done = []
    try:
        thread = threading.Thread(target=_run, args=(script, variables, process, options, done))
        # A script on a dead file server may hang for ever, in the kernel: the thread is left to it.
        thread.daemon = True
        thread.start()
        thread.join(LIMIT_S)
    except Exception:  # no thread to be had: the render goes first
        pass
    return bool(done)


def _run(script, variables, process, options, done):
    try:
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        for name in _KEPT:
            if name in os.environ:
                environment[name] = os.environ[name]
        for name, value in variables.items():
            environment[name] = _text(value)
        command = [os.path.join(FOLDER, script)]
        if process:
            command.append("%d" % int(process))
        command.extend(options)
        with open(os.devnull, "r+b") as null:
            child = subprocess.Popen(
                command, env=environment, cwd="/", close_fds=True, stdin=null, stdout=null, stderr=null
            )
        child.wait()
        done.append(True)
    except Exception:
        pass


def _text(value):
    """Managers hand out bytes, text and numbers."""
    if isinstance(value, bytes) and not isinstance(value, str):
        return value.decode("utf-8", "replace")
    return "%s" % (value,)
