"""Services, driven as a render, a server and a GUI drive them."""

import sys
import unittest

from support import Scripts, gleaner_hook

import gleaner_afanasy


def base():
    """A stand-in for `services.service.service`, new for each test."""

    class service(object):
        def __init__(self, taskInfo, verbose):
            self.taskInfo = taskInfo
            self.seen = []
            taskInfo["command"] = taskInfo["command_block"]

        def getEnvironment(self):
            return {"A": "b"}

        def parse(self, data):
            self.seen.append(data)
            return "parsed"

        def checkExitStatus(self, status):
            return status == 0

    gleaner_afanasy.attach(service)
    gleaner_afanasy.attach(service)
    return service


def info(**more):
    task = {"job_id": 12, "block_id": 0, "task_id": 3, "store_dir": b"/tmp/s", "command_block": "r"}
    task.update(more)
    return task


NAME = "afanasy:12.0.3"


class Services(unittest.TestCase):
    def test_a_render_books_the_host_before_the_launch_and_until_the_end(self):
        with Scripts() as scripts:
            task = base()(info(), False)
            self.assertEqual(scripts.calls(), [], "a service alone is no task")
            self.assertEqual(task.getEnvironment(), {"A": "b"})
            self.assertEqual(scripts.calls(), [("preflight", NAME)])
            for _ in range(3):
                self.assertEqual(task.parse({"mode": b"RUN", "pid": 4711}), "parsed")
            self.assertTrue(task.checkExitStatus(0))
            self.assertEqual(
                scripts.calls(),
                [("preflight", NAME), ("postflight 4711", NAME), ("postflight", NAME)],
            )
            self.assertNotIn("GLEANER_CORES", scripts.said()[0])
            self.assertEqual([call.get("GLEANER_FAILED") for call in scripts.said()], [None, None, "0"])

    def test_whether_it_failed_is_what_its_service_says(self):
        class tracker(base()):
            def checkExitStatus(self, status):
                if status == "raises":
                    raise ValueError("its own")
                return {0: True, 1: True, 2: False, 3: None}[status]

        for status, failed in ((0, "0"), (1, "0"), (2, "1"), (3, None)):
            with Scripts() as scripts:
                task = tracker(info(), False)
                task.getEnvironment()
                task.checkExitStatus(status)
                self.assertEqual(scripts.said()[1].get("GLEANER_FAILED"), failed)
        with Scripts() as scripts:
            task = tracker(info(), False)
            task.getEnvironment()
            self.assertRaises(ValueError, task.checkExitStatus, "raises")
            self.assertEqual(scripts.calls()[1], ("postflight", NAME), "the booking has ended")
            self.assertNotIn("GLEANER_FAILED", scripts.said()[1])

    def test_servers_and_guis_book_nothing(self):
        with Scripts() as scripts:
            for store_dir in (b"", "", None):
                task = base()(info(store_dir=store_dir), False)
                task.getEnvironment()
                task.parse({"pid": 4711})
                task.checkExitStatus(0)
            self.assertEqual(scripts.calls(), [])

    def test_a_task_that_is_skipped_books_nothing(self):
        with Scripts() as scripts:
            task = base()(info(command_block=""), False)
            task.getEnvironment()
            task.checkExitStatus(0)
            self.assertEqual(scripts.calls(), [])

    def test_classes_that_override_all_are_told_of_all_the_same(self):
        class maya(base()):
            def __init__(self, taskInfo, verbose):
                super(maya, self).__init__(taskInfo, verbose)

            def getEnvironment(self):
                return {}

            def parse(self, data, mode, pid):
                return "mine"

            def checkExitStatus(self, status):
                return True

        with Scripts() as scripts:
            task = maya(info(), False)
            self.assertEqual(task.getEnvironment(), {})
            self.assertEqual(task.parse("data", "RUN", 4711), "mine")
            self.assertTrue(task.checkExitStatus(9))
            self.assertEqual([script for script, _ in scripts.calls()], ["preflight", "postflight 4711", "postflight"])

    def test_what_a_service_raises_it_raises(self):
        class broken(base()):
            def getEnvironment(self):
                raise ValueError("its own")

        with Scripts():
            self.assertRaises(ValueError, broken(info(), False).getEnvironment)

    def test_whatever_is_wrong_with_ours_the_task_runs(self):
        def raises(*_, **__):
            raise RuntimeError("broken")

        for name in ("preflight", "postflight", "booking"):
            own = getattr(gleaner_hook, name)
            setattr(gleaner_hook, name, raises)
            try:
                task = base()(info(), False)
                self.assertEqual(task.getEnvironment(), {"A": "b"})
                self.assertEqual(task.parse({"pid": "no number"}), "parsed")
                self.assertTrue(task.checkExitStatus(0))
            finally:
                setattr(gleaner_hook, name, own)

    def test_other_versions_of_services_are_left_alone(self):
        class older(object):
            def __init__(self, taskInfo, verbose):
                pass

        gleaner_afanasy.attach(older)
        older({}, False)
        gleaner_afanasy.attach(None)
        gleaner_afanasy.attach(7)

    def test_without_gleaner_a_service_is_as_it_was(self):
        hidden, sys.modules["gleaner_hook"] = sys.modules["gleaner_hook"], None
        try:
            task = base()(info(), False)
            self.assertEqual(task.getEnvironment(), {"A": "b"})
        finally:
            sys.modules["gleaner_hook"] = hidden


if __name__ == "__main__":
    unittest.main()
