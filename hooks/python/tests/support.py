"""A folder of scripts that write down how they were called, and the managers' modules."""

import glob
import os
import shutil
import signal
import sys
import tempfile

HOOKS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for folder in ("python", "tractor", "afanasy"):
    sys.path.insert(0, os.path.join(HOOKS, folder))

import gleaner_hook  # noqa: E402

TELLING = """#!/bin/sh
note=$(mktemp "${0%/*}/note-XXXXXX")
{ echo "script=${0##*/}${1:+ $1}"; env; } > "$note"
mv "$note" "${0%/*}/said-$(date +%s%N)-$$"
"""


# What this process did that no hook may: starting other programs than the two scripts, and speaking to
# somebody. It goes by CPython's audit events, which tell of all modules.
REACHED = []
_SPEAKS = ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo")
_STARTS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile")


def _note(event, arguments):
    if event == "subprocess.Popen":
        program = os.fsdecode(arguments[0])
        if os.path.basename(program) not in ("preflight", "postflight"):
            REACHED.append((event, program))
    elif event in _SPEAKS or event in _STARTS:
        REACHED.append((event, "%s" % (arguments,)))


sys.addaudithook(_note)


class Scripts(object):
    """`preflight` and `postflight` in the place of the installed ones."""

    def __init__(self, text=TELLING):
        self.text = text

    def __enter__(self):
        self.folder = tempfile.mkdtemp()
        if self.text is not None:
            for name in ("preflight", "postflight"):
                path = os.path.join(self.folder, name)
                with open(path, "w") as script:
                    script.write(self.text)
                os.chmod(path, 0o755)
        self.own, gleaner_hook.FOLDER = gleaner_hook.FOLDER, self.folder
        return self

    def __exit__(self, *_):
        gleaner_hook.FOLDER = self.own
        shutil.rmtree(self.folder)
        assert not REACHED, "a hook reaches further than its scripts: %s" % (REACHED,)

    def said(self):
        """The calls in their order, each with the variables that it had."""
        calls = []
        for path in sorted(glob.glob(os.path.join(self.folder, "said-*"))):
            with open(path) as note:
                calls.append(dict(line.rstrip("\n").partition("=")[::2] for line in note))
        return calls

    def calls(self):
        """Script and booking of each call."""
        return [(call["script"], call["GLEANER_BOOKING"]) for call in self.said()]

    def end_all(self):
        """Ends what this process has started and left behind."""
        me = "%d" % os.getpid()
        for path in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(path) as stat:
                    fields = stat.read().rpartition(")")[2].split()
                if fields[1] == me:
                    os.kill(int(path.split("/")[2]), signal.SIGKILL)
            except (OSError, IOError):
                pass
