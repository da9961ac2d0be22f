//! When processes became another program, by the kernel's own clock.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use gleaner_protocol::Time;

use crate::part::end_with_test;

/// Tells what the kernel's process events say: of each `exec` the process, and when that was, in
/// microseconds since the machine booted.
const SCRIPT: &str = "
import os, socket, struct, time
kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 11)
kernel.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
kernel.bind((0, 1))
kernel.send(struct.pack('=IHHIIIIIIHHI', 40, 3, 0, 0, os.getpid(), 1, 1, 0, 0, 4, 0, 1))
asleep = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
while True:
    what, _, at, _, process = struct.unpack_from('=IIQII', kernel.recv(4096), 36)
    if what == 0:
        print('hears', flush=True)
    if what == 2:
        print(process, (at + asleep) // 1000, flush=True)
";

/// Listens from its start on.
pub(crate) struct ExecTimes {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl ExecTimes {
    pub(crate) fn start() -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]).stdin(Stdio::null()).stdout(Stdio::piped());
        end_with_test(&mut command);
        let mut child = command.spawn().expect("python3 is installed");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        let mut times = Self { child, said };
        while times.line() != "hears" {}
        times
    }

    /// When a process became another program first, of what has not been asked for yet.
    pub(crate) fn first_of(&mut self, pid: i32) -> Time {
        loop {
            let line = self.line();
            // Others may ask the kernel as well, and each answer is told to all.
            let Some((process, at)) = line.split_once(' ') else { continue };
            if process == pid.to_string() {
                return Time::from_micros(at.parse().expect("a time"));
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("text");
        assert!(!line.is_empty(), "the kernel tells nothing, see above");
        line.trim().to_owned()
    }
}

impl Drop for ExecTimes {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
