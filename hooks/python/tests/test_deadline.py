"""The event plugin, driven as Deadline drives one."""

import importlib.util
import os
import sys
import types
import unittest

from support import HOOKS, Scripts, gleaner_hook


class Callback(object):
    """Deadline's events are added to with `+=`."""

    def __init__(self):
        self.handlers = []

    def __iadd__(self, handler):
        self.handlers.append(handler)
        return self


EVENTS = ("StartingJob", "Rendering", "Started", "Idle", "Stopped")


class DeadlineEventListener(object):
    """A stand-in for the base class."""

    cores = "0"

    def __new__(cls):
        listener = object.__new__(cls)
        for event in EVENTS:
            setattr(listener, "OnSlave%sCallback" % event, Callback())
        return listener

    def GetConfigEntryWithDefault(self, key, default):
        assert key == "Cores", key
        return self.cores


def load():
    package, events = types.ModuleType("Deadline"), types.ModuleType("Deadline.Events")
    events.DeadlineEventListener = DeadlineEventListener
    package.Events = events
    sys.modules["Deadline"], sys.modules["Deadline.Events"] = package, events
    path = os.path.join(HOOKS, "deadline", "Gleaner", "Gleaner.py")
    spec = importlib.util.spec_from_file_location("Gleaner", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fire(listener, event, *arguments):
    for handler in getattr(listener, "OnSlave%sCallback" % event).handlers:
        handler(*arguments)


class Listener(unittest.TestCase):
    def setUp(self):
        self.module = load()
        self.listener = self.module.GetDeadlineEventListener()

    def tearDown(self):
        DeadlineEventListener.cores = "0"
        self.module.CleanupDeadlineEventListener(self.listener)

    def test_a_worker_books_its_host_from_its_first_job_until_it_is_idle(self):
        with Scripts() as scripts:
            fire(self.listener, "StartingJob", "render042", object())
            fire(self.listener, "Rendering", "render042", object())
            fire(self.listener, "StartingJob", "render042", object())
            fire(self.listener, "Idle", "render042")
            self.assertEqual(
                scripts.calls(),
                [("preflight", "deadline:render042")] * 3
                + [("postflight --if-booked", "deadline:render042")],
            )
            self.assertNotIn("GLEANER_CORES", scripts.said()[0], "the whole host")

    def test_a_worker_that_starts_or_stops_has_no_job(self):
        with Scripts() as scripts:
            for event in ("Started", "Idle", "Stopped"):
                fire(self.listener, event, "render042-instance 2")
            (_, name), *_ = scripts.calls()
            # Its first job is to book.
            self.assertEqual({script for script, _ in scripts.calls()}, {"postflight --if-booked"})
            self.assertTrue(name.startswith("deadline:render042-instance+2+"), name)

    def test_cores_are_booked_where_the_configuration_says_so(self):
        for cores, booked in (("4", "4"), ("0", None), ("-1", None), ("many", None), (None, None)):
            DeadlineEventListener.cores = cores
            with Scripts() as scripts:
                fire(self.listener, "StartingJob", "render042", object())
                self.assertEqual(scripts.said()[0].get("GLEANER_CORES"), booked, cores)

    def test_nothing_raises_whatever_is_wrong(self):
        def raises(*_, **__):
            raise RuntimeError("broken")

        for name in ("preflight", "postflight", "booking"):
            own = getattr(gleaner_hook, name)
            setattr(gleaner_hook, name, raises)
            try:
                for event in EVENTS:
                    arguments = ("w", object()) if event in ("StartingJob", "Rendering") else ("w",)
                    fire(self.listener, event, *arguments)
            finally:
                setattr(gleaner_hook, name, own)

    def test_a_host_of_an_earlier_release_is_told_of_the_end_as_well(self):
        ended = []
        own, gleaner_hook.postflight = gleaner_hook.postflight, lambda name: ended.append(name)
        try:
            fire(self.listener, "Idle", "render042")
        finally:
            gleaner_hook.postflight = own
        self.assertEqual(ended, ["deadline:render042"])

    def test_without_gleaner_nothing_is_called_and_nothing_raises(self):
        hidden, sys.modules["gleaner_hook"] = sys.modules["gleaner_hook"], None
        try:
            with Scripts() as scripts:
                fire(self.listener, "StartingJob", "render042", object())
                fire(self.listener, "Idle", "render042")
                self.assertEqual(scripts.calls(), [])
        finally:
            sys.modules["gleaner_hook"] = hidden

    def test_cleaning_up_twice_raises_nothing(self):
        self.listener.Cleanup()
        self.listener.Cleanup()
        self.assertFalse(hasattr(self.listener, "OnSlaveIdleCallback"))


if __name__ == "__main__":
    unittest.main()
