"""What calls the scripts, with scripts that do all that scripts can do."""

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from support import REACHED, Scripts, gleaner_hook


class Names(unittest.TestCase):
    def test_names_are_those_of_the_program(self):
        # The same texts stand in the program's own tests.
        self.assertEqual(gleaner_hook.booking("pbs", "17.head"), "pbs:17.head")
        self.assertEqual(
            gleaner_hook.booking("pbs", "17[5].head"), "pbs:17+5+.head+7f411be905101438"
        )

    def test_no_two_jobs_share_a_name_and_none_is_too_long(self):
        jobs = ["1", "1[1]", "1(1)", "x" * 500, "x" * 501, u"\u00dcber", "", "a b", "a+b", None, 7]
        names = [gleaner_hook.booking("f", job) for job in jobs]
        self.assertEqual(len(set(names)), len(jobs))
        for name in names:
            self.assertLessEqual(len(name), 128)
            self.assertRegex(name, r"^[A-Za-z0-9._@:+-]+$")

    def test_bytes_and_numbers_are_parts_as_text_is(self):
        self.assertEqual(gleaner_hook.booking("afanasy", 12, b"0", "3"), "afanasy:12.0.3")


class Reach(unittest.TestCase):
    def test_whatever_is_started_or_asked_beside_the_scripts_is_seen(self):
        self.assertEqual(REACHED, [])
        subprocess.call(["true"])
        with socket.socket() as one:
            one.connect_ex(("127.0.0.1", 1))
        self.assertEqual([event for event, _ in REACHED], ["subprocess.Popen", "socket.connect"])
        with self.assertRaises(AssertionError), Scripts():
            pass
        del REACHED[:]


class Calls(unittest.TestCase):
    def test_what_is_booked_is_said_and_nothing_else(self):
        with Scripts() as scripts:
            os.environ["GLEANER_RUN_DIR"] = "/of/a/job"
            try:
                called = gleaner_hook.preflight("f:1", cores=4, memory_mib=100, gpus=1, process=77)
            finally:
                del os.environ["GLEANER_RUN_DIR"]
            self.assertTrue(called)
            said = scripts.said()
            self.assertEqual(said[0]["script"], "preflight 77")
            self.assertEqual(said[0]["GLEANER_BOOKING"], "f:1")
            self.assertEqual(said[0]["GLEANER_CORES"], "4")
            self.assertEqual(said[0]["GLEANER_MEMORY_MIB"], "100")
            self.assertEqual(said[0]["GLEANER_GPUS"], "1")
            self.assertNotIn("GLEANER_RUN_DIR", said[0])
            self.assertTrue(gleaner_hook.postflight("f:1"))
            self.assertEqual(scripts.said()[1]["script"], "postflight")
            self.assertNotIn("GLEANER_FAILED", scripts.said()[1])
            for failed, said in ((True, "1"), (False, "0")):
                gleaner_hook.postflight("f:1", failed=failed)
                self.assertEqual(scripts.said()[-1]["GLEANER_FAILED"], said)

    def test_cores_that_are_not_said_are_not_said(self):
        with Scripts() as scripts:
            gleaner_hook.preflight("f:1")
            self.assertNotIn("GLEANER_CORES", scripts.said()[0])

    def test_whatever_the_script_is_nothing_raises(self):
        for text in (
            None,
            "no program",
            "#!/no/such/interpreter\n",
            "#!/bin/sh\nexit 3\n",
            "#!/bin/sh\nkill -KILL $$\n",
        ):
            with Scripts(text):
                gleaner_hook.preflight("f:1")
                gleaner_hook.postflight("f:1", process="no number")

    def test_one_that_hangs_is_left_behind(self):
        with Scripts("#!/bin/sh\nexec sleep 60\n") as scripts:
            limit, gleaner_hook.LIMIT_S = gleaner_hook.LIMIT_S, 0.2
            try:
                begun = time.monotonic()
                self.assertFalse(gleaner_hook.preflight("f:1"))
                self.assertLess(time.monotonic() - begun, 20)
            finally:
                gleaner_hook.LIMIT_S = limit
                scripts.end_all()

    def test_without_threads_or_processes_nothing_raises(self):
        def refuse(*_, **__):
            raise RuntimeError("can't start new thread")

        with Scripts():
            thread, threading.Thread.start = threading.Thread.start, refuse
            try:
                self.assertFalse(gleaner_hook.preflight("f:1"))
            finally:
                threading.Thread.start = thread
            popen, gleaner_hook.subprocess.Popen = gleaner_hook.subprocess.Popen, refuse
            try:
                self.assertFalse(gleaner_hook.preflight("f:1"))
            finally:
                gleaner_hook.subprocess.Popen = popen

    def test_many_at_once_all_call(self):
        with Scripts() as scripts:
            calls = [
                threading.Thread(target=gleaner_hook.preflight, args=("f:%d" % number,))
                for number in range(64)
            ]
            [call.start() for call in calls]
            [call.join() for call in calls]
            self.assertEqual(len(scripts.said()), 64)

    def test_a_folder_that_is_gone_is_no_matter(self):
        folder = tempfile.mkdtemp()
        own, gleaner_hook.FOLDER = gleaner_hook.FOLDER, folder
        shutil.rmtree(folder)
        try:
            self.assertFalse(gleaner_hook.preflight("f:1"))
        finally:
            gleaner_hook.FOLDER = own


if __name__ == "__main__":
    unittest.main()
