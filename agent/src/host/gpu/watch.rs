//! Whether others use the GPU: asked again and again while something may run on it, of a process of
//! its own ([`watcher`](super::watcher)).
//!
//! # Invariants
//! - While it is not known who uses it nobody may. That there is nothing to learn is believed only
//!   where nothing was learned before.
//! - Nothing waits for an answer but this, and this not for long.
//! - One process looks at a time: the next is started when the last one is gone.

use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use gleaner_protocol::{PciAddress, boottime};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

use super::watcher::{Answer, WATCH_ARGUMENT};
use crate::limits::{
    GPU_ANSWER_BYTES_MAX, GPU_REST_MS, GPU_WATCH_ANSWER_MS, GPU_WATCH_ANSWER_MS_MAX, GPU_WATCH_MS,
};
use crate::owner::wishes::{GpuWishes, Preferences};

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
    /// How long what was seen last holds while an answer is waited for.
    trust: Duration,
    /// How long an answer may take.
    limit: Duration,
    /// How long nobody looks after something went wrong.
    rest: Duration,
    /// Whether it was ever told who uses the GPU.
    was_told: bool,
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
            trust: Duration::from_millis(GPU_WATCH_ANSWER_MS),
            limit: Duration::from_millis(GPU_WATCH_ANSWER_MS_MAX),
            rest: Duration::from_millis(GPU_REST_MS),
            was_told: false,
            process: None,
        }
    }

    /// Looks while something may run on the GPU, and tells what that means each time; ends where
    /// there is nothing that tells. `has_ours` says whether a replica of this agent has it.
    pub(crate) async fn run(
        mut self,
        may_run: impl Fn() -> bool,
        has_ours: impl Fn() -> bool,
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
            match self.look(&has_ours, &mut tell).await {
                Ok(verdict) => tell(verdict),
                Err(NoSight::Absent(why)) => {
                    info!("nothing tells who else uses the GPU: {why}");
                    return tell(GpuVerdict::untold(&why));
                }
                Err(NoSight::Failed(why)) => {
                    warn!(
                        "it cannot be told who else uses the GPU, and nothing begins there: {why}"
                    );
                    tell(unknown(&why));
                    let ends = async {
                        if let Some(process) = self.process.take() {
                            process.end().await;
                        }
                    };
                    tokio::join!(ends, sleep(self.rest));
                }
            }
        }
    }

    async fn look(
        &mut self,
        has_ours: &impl Fn() -> bool,
        tell: &mut impl FnMut(GpuVerdict),
    ) -> Result<GpuVerdict, NoSight> {
        let had_ours = has_ours();
        let (trust, limit) = (self.trust, self.limit);
        let silent =
            |so_far: Duration| format!("its driver has not answered in {} s", so_far.as_secs());
        let answer = {
            let mut answer = pin!(self.ask());
            let soon = timeout(trust, &mut answer).await;
            match soon {
                Ok(answer) => answer,
                Err(_) => {
                    tell(unknown(&silent(trust)));
                    let late = timeout(limit.saturating_sub(trust), answer).await;
                    late.unwrap_or_else(|_| Err(silent(limit)))
                }
            }
        };
        let sight = match answer.map_err(NoSight::Failed)? {
            Answer::Seen(sight) => sight,
            // Something told before: a driver is being replaced, as it seems.
            Answer::Absent(why) if self.was_told => return Err(NoSight::Failed(why)),
            Answer::Absent(why) => return Err(NoSight::Absent(why)),
            Answer::Failed(why) => return Err(NoSight::Failed(why)),
        };
        self.was_told = true;
        let reason = self.wishes.decide(boottime(), &sight, had_ours || has_ours());
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

/// Something tells who uses it, and has not.
fn unknown(why: &str) -> GpuVerdict {
    GpuVerdict::unseen(&format!("it cannot be told who else uses it: {why}"))
}

/// Why nobody knows who uses the GPU.
enum NoSight {
    /// Nothing tells.
    Absent(String),
    /// Something does, and not now.
    Failed(String),
}

/// The process that looks. It is killed when this is dropped, and not waited for.
struct WatchProcess {
    child: Child,
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
        Ok(Self { child, questions, answers })
    }

    /// Kills it and waits until it is gone. A driver may keep it from dying.
    async fn end(mut self) {
        if let Err(error) = self.child.kill().await {
            warn!("cannot end the process that looks at the GPU: {error}");
        }
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
    use std::cell::Cell;
    use std::fs::{self, File};
    use std::io::Write;
    use std::process::Command as Program;
    use std::sync::Mutex;

    use super::*;
    use crate::host::gpu::tests::write_program;

    const SEEN: &str = r#"{"Seen":{"free_mib":6000,"memory_mib":8000,"has_ours":false,"busy_percent":null,"hides_others":false,"users":[]}}"#;

    /// Waits for a question.
    const QUESTION: &str = "dd bs=1 count=1 2>/dev/null | grep -q .";

    const AT_ONCE: Duration = Duration::from_millis(1);
    const PATIENT: Duration = Duration::from_secs(60);

    /// A program that is none of ours, in a folder of its own.
    struct Script(tempfile::TempDir);

    impl Script {
        fn new(text: &str) -> Self {
            let script = Self(tempfile::tempdir().expect("a folder"));
            write_program(&script.path("program"), text);
            script
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// A watch that has it look, as soon and again as soon as may be.
        fn watch(&self) -> GpuWatch {
            let address = "0000:01:00.0".parse().expect("an address");
            let library = Some("/opt/nvml.so".into());
            let preferences = Preferences { nvml_library: library, ..Preferences::default() };
            let watch = GpuWatch::new(self.path("program"), address, &preferences);
            GpuWatch { between: AT_ONCE, trust: PATIENT, limit: PATIENT, rest: AT_ONCE, ..watch }
        }
    }

    /// The verdicts of a watch until there are enough of them, or it ends.
    async fn told(
        watch: GpuWatch,
        may_run: impl Fn() -> bool,
        is_enough: impl Fn(&[GpuVerdict]) -> bool,
    ) -> Vec<GpuVerdict> {
        let all = Mutex::new(Vec::new());
        let tell = |verdict| all.lock().expect("whole").push(verdict);
        let enough = async {
            while !is_enough(&all.lock().expect("whole")) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = enough => {}
            () = watch.run(may_run, || false, tell) => {}
        }
        all.into_inner().expect("whole")
    }

    async fn first_told(watch: GpuWatch, count: usize) -> Vec<GpuVerdict> {
        let mut first = told(watch, || true, |told| told.len() >= count).await;
        // The watch may tell more before it is known that there are enough.
        first.truncate(count);
        first
    }

    fn are_free(verdicts: &[GpuVerdict]) -> Vec<bool> {
        verdicts.iter().map(|verdict| verdict.held_back.is_none()).collect()
    }

    #[tokio::test]
    async fn what_hangs_crashes_or_says_nonsense_keeps_everybody_off() {
        for (script, limit, says) in [
            ("exec sleep 1000", Duration::from_millis(50), "has not answered in 0 s"),
            ("kill -SEGV $$", PATIENT, "see its driver"),
            ("echo nonsense; cat", PATIENT, "see its driver"),
            ("echo '{\"Failed\":\"the GPU is lost\"}'; cat", PATIENT, "the GPU is lost"),
        ] {
            let script = Script::new(script);
            let told = first_told(GpuWatch { trust: limit, limit, ..script.watch() }, 1).await;
            let held_back = told[0].held_back.as_ref().expect(says);
            assert!(held_back.contains(says), "{held_back}");
        }
    }

    #[tokio::test]
    async fn where_nothing_tells_it_may_be_used_and_nobody_asks_again() {
        let script = Script::new("printf '{\"Absent\":\"not here: %s %s %s\"}\\n' \"$@\"; cat");
        let told = first_told(script.watch(), 2).await;
        let says =
            "nothing tells who else uses it: not here: __gpu_watch 0000:01:00.0 /opt/nvml.so";
        assert_eq!(told, [GpuVerdict { held_back: None, seen: Some(says.into()) }]);
    }

    #[tokio::test]
    async fn what_has_told_and_is_gone_keeps_everybody_off_until_it_is_back() {
        let script = Script::new(&format!(
            "{QUESTION} && echo '{SEEN}'; {QUESTION} && echo '{{\"Absent\":\"not here\"}}'; cat"
        ));
        let told = first_told(script.watch(), 4).await;
        assert_eq!(are_free(&told), [true, false, true, false], "{told:?}");
        let held_back = told[1].held_back.as_deref();
        assert_eq!(held_back, Some("it cannot be told who else uses it: not here"));
    }

    #[tokio::test]
    async fn who_answers_late_is_waited_for_and_meanwhile_nobody_may() {
        let script =
            Script::new(&format!("{QUESTION} && read -r _ <\"$0.answers\"; echo '{SEEN}'; cat"));
        let answers = script.path("program.answers");
        assert!(Program::new("mkfifo").arg(&answers).status().expect("it is there").success());
        // To be read from as well, so that this waits for nobody.
        let opened = File::options().read(true).write(true).open(&answers);
        let answers = opened.expect("it is there");
        let watch = GpuWatch { trust: AT_ONCE, ..script.watch() };
        let is_late = Cell::new(false);
        let told = told(
            watch,
            || true,
            |told| {
                if !told.is_empty() && !is_late.replace(true) {
                    (&answers).write_all(b"now\n").expect("there is room");
                }
                told.len() >= 2
            },
        )
        .await;
        assert_eq!(are_free(&told), [false, true], "{told:?}");
        let held_back = told[0].held_back.as_ref().expect("it is late");
        assert!(held_back.ends_with("its driver has not answered in 0 s"), "{held_back}");
    }

    #[tokio::test]
    async fn nobody_else_is_asked_before_who_hung_is_gone() {
        // Each says who is there of those that came before it, and hangs.
        let script = Script::new(
            "for one in $(cat \"$0.all\"); do kill -0 $one 2>>\"$0.gone\" && echo $one >>\"$0.there\"; \
             done; echo $$ >>\"$0.all\"; exec sleep 1000",
        );
        fs::write(script.path("program.all"), "").expect("written");
        let limit = Duration::from_millis(200);
        let watch = GpuWatch { trust: limit, limit, ..script.watch() };
        let all = || fs::read_to_string(script.path("program.all")).expect("it is there");
        let told = told(watch, || true, |_| all().lines().count() > 2).await;
        assert!(told.iter().all(|verdict| verdict.held_back.is_some()), "{told:?}");
        let there = fs::read_to_string(script.path("program.there"));
        assert!(there.is_err(), "{there:?} of {}", all());
    }

    #[tokio::test]
    async fn it_is_asked_while_something_may_run_and_what_it_saw_once_does_not_stay_true() {
        let script = Script::new(&format!("while {QUESTION}; do echo '{SEEN}'; done"));
        let rounds = Mutex::new(0_u32);
        let may_run = || {
            let mut round = rounds.lock().expect("whole");
            *round += 1;
            *round != 3 && *round != 4
        };
        let all = told(script.watch(), may_run, |told| told.len() >= 4).await;
        assert_eq!(are_free(&all[..4]), [true, true, false, true], "{all:?}");
        assert!(all[0].seen.as_deref().is_some_and(|seen| seen.contains("6000 of 8000 MiB")));
    }
}
