//! Whether others use the GPU: asked again and again while something may run on it, of a process of
//! its own ([`watcher`](super::watcher)).
//!
//! # Invariants
//! - While it is not known who uses it nobody may.
//! - Nothing waits for an answer but this, and this not for long.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use gleaner_protocol::{PciAddress, boottime};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

use super::watcher::{Answer, WATCH_ARGUMENT};
use crate::limits::{GPU_ANSWER_BYTES_MAX, GPU_REST_MS, GPU_WATCH_ANSWER_MS_MAX, GPU_WATCH_MS};
use crate::wishes::{GpuWishes, Preferences};

/// Looks at the GPU.
pub(crate) struct GpuWatch {
    /// This executable.
    program: PathBuf,
    address: PciAddress,
    /// The library that tells; where the system has it if none.
    library: Option<PathBuf>,
    wishes: GpuWishes,
    /// From one look to the next.
    between: Duration,
    /// How long an answer may take.
    limit: Duration,
    process: Option<WatchProcess>,
}

/// Whether something may run on the GPU, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuVerdict {
    /// Why nothing may; none where something may.
    pub(crate) held_back: Option<String>,
    /// What is known of it, for people.
    pub(crate) seen: Option<String>,
}

impl GpuVerdict {
    /// Nobody has looked.
    pub(crate) fn unseen(why: &str) -> Self {
        Self { held_back: Some(why.to_owned()), seen: None }
    }

    /// There is nobody to look.
    pub(crate) fn untold(why: &str) -> Self {
        let seen = format!("nothing tells who else uses it: {why}");
        Self { held_back: None, seen: Some(seen) }
    }
}

impl GpuWatch {
    /// Of the GPU at this address, by the owner's wishes; `program` is this executable.
    pub(crate) fn new(program: PathBuf, address: PciAddress, preferences: &Preferences) -> Self {
        Self {
            program,
            address,
            library: preferences.nvml_library.clone(),
            wishes: GpuWishes::new(preferences),
            between: Duration::from_millis(GPU_WATCH_MS),
            limit: Duration::from_millis(GPU_WATCH_ANSWER_MS_MAX),
            process: None,
        }
    }

    /// Looks for as long as there is something that tells, while something may run on the GPU, and
    /// tells what that means each time.
    pub(crate) async fn run(
        mut self,
        may_run: impl Fn() -> bool,
        mut tell: impl FnMut(GpuVerdict),
    ) {
        let mut looks = interval(self.between);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looked = false;
        loop {
            looks.tick().await;
            if !may_run() {
                if std::mem::take(&mut looked) {
                    tell(GpuVerdict::unseen("nobody looks at it while nothing may run there"));
                }
                continue;
            }
            looked = true;
            match self.look().await {
                Ok(verdict) => tell(verdict),
                Err(NoSight::Absent(why)) => {
                    info!("nothing tells who else uses the GPU: {why}");
                    return tell(GpuVerdict::untold(&why));
                }
                Err(NoSight::Failed(why)) => {
                    warn!(
                        "it cannot be told who else uses the GPU, and nothing begins there: {why}"
                    );
                    self.process = None;
                    tell(GpuVerdict::unseen(&format!("it cannot be told who else uses it: {why}")));
                    sleep(Duration::from_millis(GPU_REST_MS)).await;
                }
            }
        }
    }

    async fn look(&mut self) -> Result<GpuVerdict, NoSight> {
        let limit = self.limit;
        let answer = timeout(limit, self.ask()).await.unwrap_or_else(|_| {
            Err(format!("its driver has not answered in {} s", limit.as_secs()))
        });
        let sight = match answer.map_err(NoSight::Failed)? {
            Answer::Seen(sight) => sight,
            Answer::Absent(why) => return Err(NoSight::Absent(why)),
            Answer::Failed(why) => return Err(NoSight::Failed(why)),
        };
        let reason = self.wishes.decide(boottime(), &sight);
        Ok(GpuVerdict {
            held_back: reason.map(|reason| reason.to_string()),
            seen: Some(sight.to_string()),
        })
    }

    async fn ask(&mut self) -> Result<Answer, String> {
        let mut command = self.command();
        let process = match &mut self.process {
            Some(process) => process,
            none => {
                let started = WatchProcess::start(&mut command);
                none.insert(started.map_err(|error| format!("cannot look at it: {error}"))?)
            }
        };
        let answer = process.ask().await;
        answer.map_err(|_| "the process that looked at it has ended: see its driver".to_owned())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(WATCH_ARGUMENT).arg(self.address.to_string()).args(&self.library);
        command
    }
}

/// Why nobody knows who uses the GPU.
enum NoSight {
    /// Nothing tells.
    Absent(String),
    /// Something does, and not now.
    Failed(String),
}

/// The process that looks. It is killed when this is dropped, and not waited for: a driver may keep
/// it from dying.
struct WatchProcess {
    _child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl WatchProcess {
    fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let questions = child.stdin.take().expect("it is piped");
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Ok(Self { _child: child, questions, answers })
    }

    async fn ask(&mut self) -> io::Result<Answer> {
        self.questions.write_all(b"?").await?;
        let mut line = Vec::new();
        let mut answer = (&mut self.answers).take(GPU_ANSWER_BYTES_MAX);
        answer.read_until(b'\n', &mut line).await?;
        Ok(serde_json::from_slice(&line)?)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use super::*;
    use crate::gpu::tests::write_program;

    const SEEN: &str =
        r#"{"Seen":{"free_mib":6000,"memory_mib":8000,"has_ours":false,"users":[]}}"#;

    fn watch(program: &Path) -> GpuWatch {
        let address = "0000:01:00.0".parse().expect("an address");
        let library = Some("/opt/nvml.so".into());
        let preferences = Preferences { nvml_library: library, ..Preferences::default() };
        GpuWatch::new(program.to_owned(), address, &preferences)
    }

    /// What is told first where a program answers that is none of ours.
    async fn told(script: &str, limit: Duration) -> GpuVerdict {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("program");
        write_program(&program, script);
        let watch = GpuWatch { limit, ..watch(&program) };
        let (tell, told) = std::sync::mpsc::channel();
        let tell = move |verdict| tell.send(verdict).expect("it is waited for");
        let first = async {
            loop {
                if let Ok(verdict) = told.try_recv() {
                    break verdict;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            verdict = first => verdict,
            () = watch.run(|| true, tell) => told.try_recv().expect("it has told why it ends"),
        }
    }

    const PATIENT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn what_hangs_crashes_or_says_nonsense_keeps_everybody_off() {
        for (script, limit, says) in [
            ("exec sleep 1000", Duration::from_millis(50), "has not answered in 0 s"),
            ("kill -SEGV $$", PATIENT, "see its driver"),
            ("echo nonsense; cat", PATIENT, "see its driver"),
            ("echo '{\"Failed\":\"the GPU is lost\"}'; cat", PATIENT, "the GPU is lost"),
        ] {
            let held_back = told(script, limit).await.held_back.expect(says);
            assert!(held_back.contains(says), "{held_back}");
        }
    }

    #[tokio::test]
    async fn where_nothing_tells_it_may_be_used_and_nobody_asks_again() {
        let script = "printf '{\"Absent\":\"not here: %s %s %s\"}\\n' \"$@\"; cat";
        let told = told(script, PATIENT).await;
        let says =
            "nothing tells who else uses it: not here: __gpu_watch 0000:01:00.0 /opt/nvml.so";
        assert_eq!((told.held_back, told.seen.as_deref()), (None, Some(says)));
    }

    #[tokio::test]
    async fn it_is_asked_while_something_may_run_and_what_it_saw_once_does_not_stay_true() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("program");
        let question = "dd bs=1 count=1 2>/dev/null | grep -q .";
        write_program(&program, &format!("while {question}; do echo '{SEEN}'; done"));
        let (rounds, all) = (Mutex::new(0_u32), Mutex::new(Vec::new()));
        let may_run = || {
            let mut round = rounds.lock().expect("whole");
            *round += 1;
            *round != 3 && *round != 4
        };
        let told = |verdict| all.lock().expect("whole").push(verdict);
        let over = async {
            while all.lock().expect("whole").len() < 4 {
                tokio::task::yield_now().await;
            }
        };
        let between = Duration::from_millis(1);
        tokio::select! {
            () = over => {}
            () = (GpuWatch { between, ..watch(&program) }).run(may_run, told) => {
                panic!("it goes on")
            }
        }
        let all = all.into_inner().expect("whole");
        let free: Vec<bool> = all.iter().map(|verdict| verdict.held_back.is_none()).collect();
        assert_eq!(free, [true, true, false, true], "{all:?}");
        assert!(all[0].seen.as_deref().is_some_and(|seen| seen.contains("6000 of 8000 MiB")));
    }
}
