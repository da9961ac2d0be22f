"""The MoM's hook, run as a MoM runs it: as a whole, with a module `pbs` of its own."""

import collections
import os
import runpy
import sys
import types
import unittest

from support import HOOKS, Scripts, gleaner_hook

HOOK = os.path.join(HOOKS, "openpbs", "gleaner_openpbs.py")
BEGIN, END = 256, 1024


class Event(object):
    def __init__(self, kind, exec_vnode="", job="812.head", place="pack"):
        self.type = kind
        # What a job does not ask for is `None`, as the MoM's own object has it.
        resources = collections.defaultdict(lambda: None, place=place)
        self.job = types.SimpleNamespace(id=job, exec_vnode=exec_vnode, Resource_List=resources)
        self.accepted = 0

    def accept(self):
        self.accepted += 1
        raise SystemExit(0)


def run(event, node="n1.farm"):
    """Runs the hook; what it ends with."""
    module = types.ModuleType("pbs")
    module.EXECJOB_BEGIN = BEGIN
    module.event = lambda: event
    module.get_local_nodename = lambda: node
    sys.modules["pbs"] = module
    try:
        runpy.run_path(HOOK)
    except SystemExit as end:
        return end.code
    return None


class Hook(unittest.TestCase):
    def booked(self, exec_vnode, node="n1.farm", place="pack"):
        with Scripts() as scripts:
            event = Event(BEGIN, exec_vnode, place=place)
            self.assertEqual(run(event, node), 0)
            self.assertEqual(event.accepted, 1)
            (call,) = scripts.said()
            return tuple(call.get("GLEANER_" + name) for name in ("CORES", "MEMORY_MIB", "GPUS"))

    def test_a_host_books_its_share(self):
        for exec_vnode, expected in (
            ("(n1:ncpus=4:mem=1048576kb)", ("4", "1024", None)),
            ("(n2:ncpus=8)+(n1:ncpus=2:mem=100mb:ngpus=1)", ("2", "100", "1")),
            ("(n1[0]:ncpus=2:mem=1gb+n1[1]:ncpus=2:mem=1gb)", ("4", "2048", None)),
            ("(n1:ncpus=1)+(n1:ncpus=1)", ("2", None, None)),
            ("(N1.farm:ncpus=3:mem=1kb)", ("3", "1", None)),
            ("(n1:ncpus=3:mem=1)", ("3", "1", None)),
        ):
            self.assertEqual(self.booked(exec_vnode), expected, exec_vnode)

    def test_what_makes_no_sense_books_the_whole_host(self):
        for exec_vnode in ("", "(n9:ncpus=4)", "(n1:ncpus=x)", "(n1:mem=4zb)", "((", "(n1)", "(n11:ncpus=1)"):
            self.assertEqual(self.booked(exec_vnode), (None, None, None), exec_vnode)
        self.assertEqual(self.booked("(n1:ncpus=1)", node=None), (None, None, None))

    def test_a_job_that_is_alone_books_the_whole_host(self):
        for place, cores in (
            ("excl", None),
            ("scatter:exclhost", None),
            ("pack:excl:group=host", None),
            ("scatter:shared", "2"),
            ("free", "2"),
            (None, "2"),
        ):
            booked = self.booked("(n1:ncpus=2:mem=1gb)", place=place)
            self.assertEqual(booked, (cores, "1024", None), place)

    def test_the_end_names_the_same_attempt(self):
        with Scripts() as scripts:
            run(Event(BEGIN, "(n1:ncpus=1)", "17[5].head"))
            run(Event(END, "", "17[5].head"))
            (first, name), (second, same) = scripts.calls()
            self.assertEqual((first, second), ("preflight", "postflight"))
            self.assertEqual(name, same)

    def test_the_end_says_whether_the_job_failed(self):
        for status, failed in (
            (None, None),
            (0, "0"),
            ("0", "0"),
            (1, "1"),
            (256 + 11, "1"),
            (256 + 9, None),
            (256 + 15, None),
            (-11, None),
            ("well", None),
        ):
            with Scripts() as scripts:
                event = Event(END)
                event.job.Exit_status = status
                self.assertEqual((run(event), event.accepted), (0, 1))
                (call,) = scripts.said()
                self.assertEqual(call.get("GLEANER_FAILED"), failed, status)

    def test_every_event_is_accepted_whatever_is_wrong(self):
        def raises(*_, **__):
            raise RuntimeError("broken")

        for name in ("preflight", "postflight", "booking"):
            own = getattr(gleaner_hook, name)
            setattr(gleaner_hook, name, raises)
            try:
                for kind in (BEGIN, END):
                    event = Event(kind)
                    self.assertEqual((run(event), event.accepted), (0, 1))
            finally:
                setattr(gleaner_hook, name, own)
        event = Event(BEGIN)
        event.job = None
        self.assertEqual((run(event), event.accepted), (0, 1))
        self.assertIsNone(run(None), "no event at all")

    def test_without_gleaner_the_event_is_accepted(self):
        hidden, sys.modules["gleaner_hook"] = sys.modules["gleaner_hook"], None
        try:
            event = Event(BEGIN)
            self.assertEqual((run(event), event.accepted), (0, 1))
        finally:
            sys.modules["gleaner_hook"] = hidden


if __name__ == "__main__":
    unittest.main()
