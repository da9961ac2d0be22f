//! Work that can be seen from outside: programs that say in a folder where they run, then compute
//! until they are told to go home.

use std::collections::VecDeque;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use gleaner_protocol::job::{CommandTask, JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{OwnerName, Span, Time, boottime};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify;

use crate::patience::PATIENCE;

/// Writes its number and folder where the test listens, then computes until there is a file `go`.
const SPIN: &str = r#"echo "$$ $PWD" > "$1/$GLEANER_INDEX.$$"
while [ ! -e "$1/go" ]; do :; done
echo "done with $GLEANER_INDEX""#;

/// The shell that the agents of a cluster allow.
pub(crate) const SHELL: &str = "/bin/sh";

/// A replica that has begun to compute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Its workunit.
    pub(crate) index: u32,
    /// Its process.
    pub(crate) pid: i32,
    /// Where.
    pub(crate) host: String,
}

/// Where they say so.
pub(crate) struct Marks {
    /// The cluster's folder, in which each host has its own.
    cluster: PathBuf,
    folder: PathBuf,
    inotify: OwnedFd,
    heard: VecDeque<Mark>,
}

impl Marks {
    pub(crate) fn new(cluster: &Path) -> Self {
        Self::named(cluster, "marks")
    }

    /// Those of another kind of work.
    pub(crate) fn named(cluster: &Path, name: &str) -> Self {
        let folder = cluster.join(name);
        fs::create_dir(&folder).expect("a folder");
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let inotify = inotify::init(flags).expect("it listens");
        inotify::add_watch(&inotify, &folder, inotify::WatchFlags::CLOSE_WRITE)
            .expect("it watches");
        Self { cluster: cluster.into(), folder, inotify, heard: VecDeque::new() }
    }

    /// A job of such programs.
    pub(crate) fn job(&self, workunits: u32, replication: u8) -> JobSpec {
        let folder = self.folder.to_str().expect("a plain path").to_owned();
        let argv = [SHELL, "-c", SPIN, "spin"].map(str::to_owned);
        let argv = argv.into_iter().chain([folder]).collect();
        JobSpec {
            name: "spinners".into(),
            owner: OwnerName::new("tester").expect("a plain name"),
            project: None,
            lane: Lane::Background,
            task: Task::Command(CommandTask {
                argv,
                inputs: Vec::new(),
                outputs: Vec::new(),
                memory_mib: None,
            }),
            workunits: Workunits::Count(workunits),
            replication,
            quorum: None,
            max_replicas: None,
            lease_s: 600,
            profile: Default::default(),
            trust: Default::default(),
            on_release: Default::default(),
            attempts: Default::default(),
            on: None,
            cores_permille: gleaner_protocol::Share::WHOLE,
            gpus: 0,
        }
    }

    /// Sends all of them home.
    pub(crate) fn go(&self) {
        fs::write(self.folder.join("go"), "").expect("written");
    }

    /// The next replica that begins to compute.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Mark {
        let end = boottime() + PATIENCE.into();
        self.next_until(end).expect("another replica begins in time")
    }

    /// The next `count` of them.
    #[track_caller]
    pub(crate) fn take(&mut self, count: usize) -> Vec<Mark> {
        (0..count).map(|_| self.next()).collect()
    }

    /// At most `count` of those that begin within a time.
    pub(crate) fn up_to(&mut self, count: usize, span: Span) -> Vec<Mark> {
        let end = boottime() + span;
        std::iter::from_fn(|| self.next_until(end)).take(count).collect()
    }

    /// Those that begin within a time.
    pub(crate) fn within(&mut self, span: Span) -> Vec<Mark> {
        let end = boottime() + span;
        std::iter::from_fn(|| self.next_until(end)).collect()
    }

    fn next_until(&mut self, end: Time) -> Option<Mark> {
        loop {
            if let Some(mark) = self.heard.pop_front() {
                return Some(mark);
            }
            let rest = end.since(boottime()).into();
            let mut fds = [PollFd::new(&self.inotify, PollFlags::IN)];
            match poll(&mut fds, Some(&rest)) {
                Ok(0) => return None,
                Ok(_) => self.hear(),
                Err(error) => assert_eq!(error, rustix::io::Errno::INTR),
            }
        }
    }

    fn hear(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            let name = event.file_name().expect("a file").to_string_lossy().into_owned();
            let Some((index, _)) = name.split_once('.') else { continue };
            let text = fs::read_to_string(self.folder.join(&name)).expect("a mark");
            // One that was killed before it had written anything leaves nothing.
            if text.is_empty() {
                continue;
            }
            let (pid, folder) = text.trim_end().split_once(' ').expect("number and folder");
            let below = Path::new(folder).strip_prefix(&self.cluster).expect("a host's folder");
            let host = below.iter().next().expect("a host").to_string_lossy().into_owned();
            self.heard.push_back(Mark {
                index: index.parse().expect("an index"),
                pid: pid.parse().expect("a number"),
                host,
            });
        }
    }
}
