//! A real Grid Engine: a master and one execution host of four slots on this machine, in a folder
//! of its own, whose queue has the prolog and epilog of `hooks/grid-engine`, or none.
//!
//! Grid Engine refuses jobs of root: where this test is root, its jobs are those of `nobody`.
//!
//! # Invariants
//! - Its daemons are children of this test and end with it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gleaner_protocol::Span;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use crate::part::end_with_test;
use crate::patience::{PATIENCE, eventually};
use crate::ports::free_port;
use crate::program::{self, Said, run};

/// Slots of its one host, and cores of the host that they stand for.
pub(crate) const SLOTS: u32 = 4;
/// Where the distribution's packages put the programs that only installers call.
const LIBRARY: &str = "/usr/lib/gridengine";
const SHARE: &str = "/usr/share/gridengine";
/// The user `nobody`, wherever there is one.
pub(crate) const NOBODY: u32 = 65_534;

/// A farm.
pub(crate) struct GridEngineFarm {
    folder: TempDir,
    ports: [u16; 2],
    daemons: Vec<Child>,
}

/// A job that says when it begins, and renders until it is told to end.
pub(crate) struct Render {
    qsub: Child,
    begun: File,
    go: File,
}

impl GridEngineFarm {
    /// Starts it; ready when its queue takes jobs.
    pub(crate) async fn start(has_hooks: bool) -> Self {
        let folder = tempfile::Builder::new().prefix("sge-").tempdir().expect("a folder");
        // Whose jobs run there is another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("allowed");
        let mut farm = Self { folder, ports: [free_port(), free_port()], daemons: Vec::new() };
        farm.lay_out();
        farm.run_daemon("sge_qmaster");
        eventually("the master", async || {
            (farm.says("qconf", &["-sh"]).code == Some(0)).then_some(())
        })
        .await;
        farm.says("qconf", &["-as", "localhost"]).ok();
        farm.run_daemon("sge_execd");
        eventually("the execution host", async || {
            farm.says("qconf", &["-sel"]).stdout.contains("localhost").then_some(())
        })
        .await;
        farm.add_queue(has_hooks);
        eventually("the queue", async || farm.states().contains("farm.q").then_some(())).await;
        farm
    }

    /// Its root folder, with links to what the packages have.
    fn lay_out(&self) {
        let root = self.path("");
        for part in ["bin", "lib", "utilbin"] {
            fs::create_dir(root.join(part)).expect("a folder");
            symlink(LIBRARY, root.join(part).join("lx-amd64")).expect("linked");
        }
        symlink(Path::new(SHARE).join("util"), root.join("util")).expect("linked");
        for part in ["default/common", "master/job_scripts", "hosts", "store", "hooks"] {
            fs::create_dir_all(root.join(part)).expect("a folder");
        }
        for script in ["prolog", "epilog"] {
            let of = Path::new(env!("CARGO_MANIFEST_DIR")).join("hooks/grid-engine").join(script);
            program::install(&of, &root.join("hooks").join(script));
        }
        let common = root.join("default/common");
        let name = rustix::system::uname();
        let name = name.nodename().to_string_lossy().into_owned();
        fs::write(common.join("act_qmaster"), "localhost\n").expect("written");
        fs::write(common.join("host_aliases"), format!("localhost {name}\n")).expect("written");
        let root = root.display();
        let bootstrap = format!(
            "admin_user none\ndefault_domain none\nignore_fqdn false\n\
             spooling_method berkeleydb\nspooling_lib libspoolb\nspooling_params {root}/store\n\
             binary_path /usr/sbin\nqmaster_spool_dir {root}/master\nsecurity_mode none\n\
             listener_threads 2\nworker_threads 2\nscheduler_threads 1\n"
        );
        fs::write(common.join("bootstrap"), bootstrap).expect("written");
        let defaults = Path::new(SHARE).join("default-configuration");
        let defaults =
            fs::read_to_string(defaults).expect("Grid Engine is installed: see tests/run");
        let spool = format!("execd_spool_dir {root}/hosts");
        // By a group of its own it finds a job's processes, and ends them with the job: those of
        // another farm on this machine too, if that has the same groups.
        let first = 100_000 + 16 * u32::from(self.ports[0]);
        let groups = format!("gid_range {first}-{}", first + 15);
        let defaults = replaced(&defaults, &[("execd_spool_dir", &spool), ("gid_range", &groups)]);
        let configuration = self.write("configuration", &defaults);
        let installs = |program: &str, arguments: &[&str]| {
            let program = format!("{LIBRARY}/{program}");
            self.says(&program, arguments).ok();
        };
        let store = self.path("store").display().to_string();
        installs("spoolinit", &["berkeleydb", "libspoolb", &store, "init"]);
        installs("spooldefaults", &["configuration", &configuration]);
        let resources = format!("{SHARE}/util/resources");
        installs("spooldefaults", &["complexes", &format!("{resources}/centry")]);
        installs("spooldefaults", &["usersets", &format!("{resources}/usersets")]);
        let user = run(Command::new("id").arg("-un")).ok();
        installs("spooldefaults", &["managers", user.trim()]);
    }

    fn add_queue(&self, has_hooks: bool) {
        let environment = "pe_name smp\nslots 999\nuser_lists NONE\nxuser_lists NONE\n\
                           start_proc_args NONE\nstop_proc_args NONE\n\
                           allocation_rule $pe_slots\ncontrol_slaves FALSE\n\
                           job_is_first_task TRUE\nurgency_slots min\n\
                           accounting_summary FALSE\nqsort_args NONE\n";
        self.says("qconf", &["-Ap", &self.write("pe", environment)]).ok();
        // As `hooks/grid-engine/README.md` has it.
        let hook = |kind: &str| {
            if !has_hooks {
                return format!("{kind} NONE");
            }
            let user = if is_root() { "root@" } else { "" };
            let path = self.path("hooks").join(kind);
            let path = path.display();
            format!("{kind} {user}{path} $host $job_id $ja_task_id $job_owner $queue")
        };
        let queue = replaced(
            &self.says("qconf", &["-sq"]).ok(),
            &[
                ("qname", "qname farm.q"),
                ("hostlist", "hostlist localhost"),
                ("load_thresholds", "load_thresholds NONE"),
                ("slots", &format!("slots {SLOTS}")),
                ("pe_list", "pe_list smp"),
                ("shell", "shell /bin/sh"),
                ("shell_start_mode", "shell_start_mode unix_behavior"),
                ("prolog", &hook("prolog")),
                ("epilog", &hook("epilog")),
            ],
        );
        self.says("qconf", &["-Aq", &self.write("queue", &queue)]).ok();
        let scheduler = replaced(
            &self.says("qconf", &["-ssconf"]).ok(),
            &[
                ("flush_submit_sec", "flush_submit_sec 1"),
                ("flush_finish_sec", "flush_finish_sec 1"),
                ("schedule_interval", "schedule_interval 0:0:1"),
            ],
        );
        self.says("qconf", &["-Msconf", &self.write("scheduler", &scheduler)]).ok();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("written");
        path.display().to_string()
    }

    fn run_daemon(&mut self, program: &str) {
        let log = File::options().create(true).append(true).open(self.path("daemons.log"));
        let log = log.expect("a log");
        // In the foreground.
        let mut command = self.command(&format!("/usr/sbin/{program}"));
        command.env("SGE_ND", "true").stdout(log.try_clone().expect("a log")).stderr(log);
        end_with_test(&mut command);
        self.daemons.push(command.spawn().expect("Grid Engine is installed: see tests/run"));
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .envs(self.environment())
            .stdin(Stdio::null());
        command
    }

    /// By which its programs find it.
    pub(crate) fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("SGE_ROOT", self.path("").display().to_string()),
            ("SGE_CELL", "default".into()),
            ("SGE_QMASTER_PORT", self.ports[0].to_string()),
            ("SGE_EXECD_PORT", self.ports[1].to_string()),
        ]
    }

    /// Runs one of its programs to its end.
    pub(crate) fn says(&self, program: &str, arguments: &[&str]) -> Said {
        run(self.command(program).args(arguments))
    }

    /// Its queue and what runs there.
    pub(crate) fn states(&self) -> String {
        self.says("qstat", &["-f"]).stdout
    }

    /// Gives its hooks these settings.
    pub(crate) fn hooks_read(&self, settings: &str) {
        self.write("hooks/gleaner-hook.txt", settings);
    }

    /// Submits a render of so many slots.
    pub(crate) fn render(&self, slots: u32) -> Render {
        let place = tempfile::Builder::new().prefix("job-").tempdir_in(self.folder.path());
        let place = place.expect("a folder").keep();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).expect("allowed");
        let pipe = |name: &str| {
            let path = place.join(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).expect("a pipe");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("allowed");
            // To hold both ends means that it neither blocks nor ends.
            File::options().read(true).write(true).open(path).expect("opened")
        };
        let (begun, go) = (pipe("begun"), pipe("go"));
        let script = "echo begun > \"$1/begun\"; read word < \"$1/go\"";
        let mut qsub = self.submits(slots);
        qsub.args(["/bin/sh", "-c", script, "sh", &place.display().to_string()]);
        end_with_test(&mut qsub);
        Render { qsub: qsub.spawn().expect("qsub is installed"), begun, go }
    }

    /// Has a command run in so many slots, to its end; whether it succeeded.
    pub(crate) fn runs(&self, slots: u32, command: &[String]) -> bool {
        let mut qsub = self.submits(slots);
        end_with_test(qsub.args(command));
        qsub.status().expect("qsub is installed").success()
    }

    /// What submits the command that follows, and ends with it.
    fn submits(&self, slots: u32) -> Command {
        let mut qsub = self.command("qsub");
        qsub.args(["-sync", "y", "-b", "y", "-shell", "n", "-wd", "/tmp"])
            .args(["-o", "/dev/null", "-e", "/dev/null"])
            .args(["-pe", "smp", &slots.to_string()])
            .stdout(Stdio::null());
        if is_root() {
            qsub.uid(NOBODY).gid(NOBODY);
        }
        qsub
    }

    /// How long the only render that runs took from what the execution daemon wrote down for it, just
    /// before it has it started, to its first word.
    pub(crate) fn launch_took(&self, render: &Render) -> Span {
        let below = |folder: PathBuf| {
            let mut entries = fs::read_dir(&folder).expect("a folder").flatten();
            let found = entries.next().unwrap_or_else(|| panic!("{} is empty", folder.display()));
            assert!(entries.next().is_none(), "one alone is in {}", folder.display());
            found.path()
        };
        let job = below(below(self.path("hosts")).join("active_jobs"));
        let written = fs::metadata(job.join("config")).and_then(|file| file.modified());
        // A pipe was changed when it was written to last.
        let said = render.begun.metadata().and_then(|pipe| pipe.modified());
        let (written, said) = (written.expect("it runs"), said.expect("it has begun"));
        Span::from(said.duration_since(written).expect("later"))
    }
}

impl Drop for GridEngineFarm {
    fn drop(&mut self) {
        // Jobs are no children of ours.
        self.says("qdel", &["-f", "-u", "*"]);
        for daemon in self.daemons.iter_mut().rev() {
            // It may have ended by itself, which the tests have noticed then.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if std::thread::panicking() {
            for log in ["daemons.log", "master/messages", "hosts/localhost/messages"] {
                let text = fs::read_to_string(self.path(log)).unwrap_or_default();
                eprintln!("-- {log}\n{text}");
            }
        }
    }
}

impl Render {
    /// Waits until it has begun.
    #[track_caller]
    pub(crate) fn has_begun(&self) {
        let limit = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.begun, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&limit)), Ok(1), "the render does not begin");
    }

    /// Ends it, and waits for its end; whether it succeeded.
    pub(crate) fn ends(mut self) -> bool {
        self.go.write_all(b"go\n").expect("written");
        self.qsub.wait().expect("our own child").success()
    }
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// A text of settings, a line each, with these lines in the place of those of their names.
fn replaced(text: &str, lines: &[(&str, &str)]) -> String {
    let line = |line: &str| {
        let name = line.split_whitespace().next().unwrap_or_default();
        let new = lines.iter().find(|(of, _)| *of == name);
        new.map_or_else(|| line.to_owned(), |(_, new)| (*new).to_owned()) + "\n"
    };
    text.lines().map(line).collect()
}
