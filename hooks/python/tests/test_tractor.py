"""The status filter, driven as a blade drives one."""

import importlib.util
import os
import sys
import types
import unittest

from support import HOOKS, Scripts, gleaner_hook


class TrStatusFilter(object):
    """A stand-in for the blade's own."""

    def __init__(self):
        self.seen = []

    def SubprocessStarted(self, cmd):
        self.seen.append(("started", cmd))
        return "started"

    def SubprocessFailedToStart(self, cmd):
        self.seen.append(("failed", cmd))

    def SubprocessEnded(self, cmd):
        self.seen.append(("ended", cmd))


class Command(object):
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def load():
    names = ["tractor", "tractor.apps", "tractor.apps.blade", "tractor.apps.blade.TrStatusFilter"]
    for name in names:
        sys.modules[name] = types.ModuleType(name)
    sys.modules[names[-1]].TrStatusFilter = TrStatusFilter
    path = os.path.join(HOOKS, "tractor", "TractorSiteStatusFilter.py")
    spec = importlib.util.spec_from_file_location("TractorSiteStatusFilter", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TractorSiteStatusFilter()


class Filter(unittest.TestCase):
    def test_a_command_books_the_host_until_it_ends(self):
        blade, command = load(), Command(jid=7, tid=1, cid=2, pid=4711)
        with Scripts() as scripts:
            self.assertEqual(blade.SubprocessStarted(command), "started")
            blade.SubprocessEnded(command)
            self.assertEqual(
                scripts.calls(),
                [("preflight 4711", "tractor:7.1.2"), ("postflight", "tractor:7.1.2")],
            )
        self.assertEqual([word for word, _ in blade.seen], ["started", "ended"])

    def test_whether_it_failed_is_what_its_exit_code_says(self):
        blade = load()
        for known, failed in (
            ({"exitcode": 0}, "0"),
            ({"exitcode": 1}, "1"),
            ({"exitcode": -11}, "1"),
            ({"exitcode": -9}, None),
            ({"exitcode": -15}, None),
            ({"exitcode": 10110}, None),
            ({"exitcode": 0, "yieldchkpt": True}, None),
            ({"exitcode": "none"}, None),
            ({}, None),
        ):
            with Scripts() as scripts:
                blade.SubprocessEnded(Command(jid=7, tid=1, cid=2, **known))
                (said,) = scripts.said()
                self.assertEqual(said.get("GLEANER_FAILED"), failed, known)

    def test_one_that_did_not_start_is_over_and_may_start_again(self):
        blade, command = load(), Command(jid=7, tid=1, cid=2)
        with Scripts() as scripts:
            blade.SubprocessFailedToStart(command)
            self.assertEqual(scripts.calls(), [("postflight --if-booked", "tractor:7.1.2")])
        self.assertEqual(blade.seen, [("failed", command)])

    def test_commands_without_ids_are_told_apart_by_their_processes(self):
        blade = load()
        with Scripts() as scripts:
            for command in (Command(pid=12), Command(pid=13), Command(), Command(pid="x")):
                blade.SubprocessStarted(command)
                blade.SubprocessEnded(command)
            names = [name for _, name in scripts.calls()]
            self.assertEqual(names[:4], ["tractor:process.12"] * 2 + ["tractor:process.13"] * 2)
            self.assertEqual(names[4], names[5])
            self.assertEqual(len(set(names)), 4)

    def test_the_blades_own_filter_runs_and_raises_as_before(self):
        blade = load()

        def refuses(cmd):
            raise ValueError("the blade's own")

        with Scripts():
            own, TrStatusFilter.SubprocessEnded = TrStatusFilter.SubprocessEnded, lambda s, c: refuses(c)
            try:
                self.assertRaises(ValueError, blade.SubprocessEnded, Command(pid=12))
            finally:
                TrStatusFilter.SubprocessEnded = own

    def test_whatever_is_wrong_with_ours_the_blades_own_runs(self):
        def raises(*_, **__):
            raise RuntimeError("broken")

        blade, command = load(), Command(jid=7, tid=1, cid=2)
        for name in ("preflight", "postflight", "booking"):
            own = getattr(gleaner_hook, name)
            setattr(gleaner_hook, name, raises)
            try:
                blade.SubprocessStarted(command)
                blade.SubprocessEnded(command)
                blade.SubprocessFailedToStart(command)
            finally:
                setattr(gleaner_hook, name, own)
        self.assertEqual(len(blade.seen), 9)

    def test_without_gleaner_it_is_the_blades_own(self):
        hidden = {name: sys.modules.pop(name, None) for name in ("gleaner_hook", "gleaner_tractor")}
        sys.modules["gleaner_hook"] = sys.modules["gleaner_tractor"] = None
        try:
            blade = load()
            self.assertEqual(blade.SubprocessStarted(Command()), "started")
        finally:
            sys.modules.pop("gleaner_tractor")
            sys.modules["gleaner_hook"] = hidden["gleaner_hook"]


if __name__ == "__main__":
    unittest.main()
