//! A real Slurm farm: a controller and three virtual nodes of four cores on this machine, with the
//! Prolog and Epilog of `hooks/slurm` or without any.
//!
//! # Invariants
//! - Its daemons are children of this test and end with it, as its jobs do.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::part::end_with_test;
use crate::patience::eventually;
use crate::ports::free_port;
use crate::program::{Said, install, run, write_program};

/// Cores of each node.
pub(crate) const CORES: u32 = 4;
/// As many as the farm hosts of a cluster, by the same names.
pub(crate) const NODES: usize = 3;

/// A farm.
pub(crate) struct SlurmFarm {
    folder: TempDir,
    daemons: Vec<Child>,
}

/// One `srun`: a job that says when it begins, and renders until it is told to end.
pub(crate) struct Render {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl SlurmFarm {
    /// Starts it; ready when all nodes are idle.
    pub(crate) async fn start(has_hooks: bool) -> Self {
        let folder = tempfile::Builder::new().prefix("slurm-").tempdir().expect("a folder");
        let ports: Vec<u16> = (0..=NODES).map(|_| free_port()).collect();
        fs::write(folder.path().join("slurm.conf"), settings(folder.path(), &ports, has_hooks))
            .expect("written");
        fs::create_dir(folder.path().join("state")).expect("a folder");
        for node in nodes() {
            fs::create_dir_all(folder.path().join("spool").join(node)).expect("a folder");
        }
        for script in ["prolog", "epilog"] {
            let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("hooks/slurm").join(script);
            for node in nodes() {
                let own = folder.path().join("hooks").join(&node);
                fs::create_dir_all(&own).expect("a folder");
                install(&from, &own.join(script));
            }
            // The nodes are one machine, and each has its own scripts and settings, as hosts have.
            let of_node = folder.path().join("hooks/$SLURMD_NODENAME").join(script);
            let text = format!("#!/bin/sh\nexec {}\n", of_node.display());
            write_program(&folder.path().join(script), &text);
        }
        let mut farm = Self { folder, daemons: Vec::new() };
        farm.run_daemon("slurmctld", &["-D", "-i"]);
        for node in nodes() {
            farm.run_daemon("slurmd", &["-D", "-N", &node]);
        }
        farm.all_are("idle").await;
        farm
    }

    /// Where its configuration is: what `SLURM_CONF` has to name.
    pub(crate) fn conf(&self) -> PathBuf {
        self.folder.path().join("slurm.conf")
    }

    /// Tells its hooks of the agents and the monitor of a cluster.
    pub(crate) fn serves(&self, cluster: &Cluster) {
        // As an installation names it where it lies beside the whole program.
        let gleaner = env!("CARGO_BIN_EXE_gleaner-hook");
        let monitor = &cluster.monitor_api().url;
        for host in cluster.hosts() {
            let run_dir = host.run_dir();
            let settings = format!(
                "GLEANER={gleaner}\nGLEANER_MONITOR={monitor}\nGLEANER_RUN_DIR={}\n",
                run_dir.display()
            );
            self.hooks_of(&host.name, &settings);
        }
    }

    /// Gives the hooks of all nodes these settings.
    pub(crate) fn hooks_read(&self, settings: &str) {
        nodes().for_each(|node| self.hooks_of(&node, settings));
    }

    fn hooks_of(&self, node: &str, settings: &str) {
        let file = self.folder.path().join("hooks").join(node).join("gleaner-hook.txt");
        fs::write(file, settings).expect("written");
    }

    fn run_daemon(&mut self, program: &str, arguments: &[&str]) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("daemons.log"))
            .expect("a log");
        let mut command = self.command(program);
        command.args(arguments).stdout(log.try_clone().expect("a log")).stderr(log);
        end_with_test(&mut command);
        self.daemons.push(command.spawn().expect("Slurm is installed: see tests/run"));
    }

    /// One of Slurm's programs, for this farm.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("SLURM_CONF", self.conf())
            .stdin(Stdio::null());
        command
    }

    /// Runs one of its programs to its end.
    pub(crate) fn says(&self, program: &str, arguments: &[&str]) -> Said {
        let mut command = self.command(program);
        run(command.args(arguments))
    }

    /// Each node's state, in order.
    pub(crate) fn states(&self) -> Vec<String> {
        let said = self.says("sinfo", &["--noheader", "--Node", "--format=%T"]);
        said.stdout.lines().map(str::to_owned).collect()
    }

    /// Waits until all nodes are in this state, and no other.
    pub(crate) async fn all_are(&self, state: &str) {
        eventually(&format!("all nodes to be {state}"), async || {
            let states = self.states();
            assert!(!states.iter().any(|state| state.starts_with("drain")), "{states:?}");
            (states.len() == NODES && states.iter().all(|is| is == state)).then_some(())
        })
        .await;
    }

    /// Submits a render with these options of `srun`.
    pub(crate) fn render(&self, options: &[&str]) -> Render {
        let mut command = self.command("srun");
        command
            .args(options)
            .args(["sh", "-c", "echo begun; exec cat > /dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        end_with_test(&mut command);
        let mut child = command.spawn().expect("srun is installed");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        Render { child, said }
    }
}

impl Drop for SlurmFarm {
    fn drop(&mut self) {
        // The jobs first, whose steps are no children of ours.
        self.says("scancel", &["--state=RUNNING", "--full", "--signal=KILL", "--user=root"]);
        for daemon in self.daemons.iter_mut().rev() {
            // It may have ended by itself, which the tests have noticed then.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if std::thread::panicking() {
            for entry in fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
                if entry.path().extension().is_some_and(|extension| extension == "log") {
                    let log = fs::read_to_string(entry.path()).unwrap_or_default();
                    eprintln!("-- {}\n{log}", entry.path().display());
                }
            }
        }
    }
}

impl Render {
    /// Waits until all of its tasks have begun.
    #[track_caller]
    pub(crate) fn has_begun(&mut self, tasks: usize) {
        for _ in 0..tasks {
            let mut line = String::new();
            self.said.read_line(&mut line).expect("text");
            assert_eq!(line, "begun\n", "the render ended: {:?}", self.child.try_wait());
        }
    }

    /// Ends it, and waits for its end.
    pub(crate) fn ends(mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        self.child.wait().expect("our own child")
    }
}

fn nodes() -> impl Iterator<Item = String> {
    (1..=NODES).map(|number| format!("farm{number}"))
}

fn settings(folder: &Path, ports: &[u16], has_hooks: bool) -> String {
    let folder = folder.display();
    let controller = ports[0];
    let user = rustix::process::getuid().as_raw();
    let mut text = format!(
        "ClusterName=test\n\
         SlurmctldHost=localhost(127.0.0.1)\n\
         SlurmctldPort={controller}\n\
         SlurmUser=#{user}\n\
         SlurmdUser=#{user}\n\
         AuthType=auth/none\n\
         CredType=cred/none\n\
         StateSaveLocation={folder}/state\n\
         SlurmdSpoolDir={folder}/spool/%n\n\
         SlurmctldPidFile={folder}/slurmctld.pid\n\
         SlurmdPidFile={folder}/slurmd-%n.pid\n\
         ProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\n\
         MpiDefault=none\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_CPU\n\
         SlurmdParameters=config_overrides\n\
         SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1\n"
    )
    .replace(&format!("#{user}"), &user_name(user));
    for (node, port) in nodes().zip(&ports[1..]) {
        text += &format!("NodeName={node} NodeAddr=127.0.0.1 Port={port} CPUs={CORES}\n");
    }
    text += "PartitionName=farm Nodes=ALL Default=YES State=UP\n";
    if has_hooks {
        // As `hooks/slurm/README.md` has it.
        text +=
            &format!("Prolog={folder}/prolog\nEpilog={folder}/epilog\nPrologEpilogTimeout=20\n");
    }
    text
}

fn user_name(user: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").expect("users");
    let name = users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2)?.parse() == Ok(user)).then(|| fields[0].to_owned())
    });
    name.expect("this user has a name")
}
