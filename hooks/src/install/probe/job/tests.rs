use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use gleaner_protocol::booking_of;
use gleaner_protocol::farm::Booked;

use super::*;
use crate::install::{Level, Manager, Options, adapter};

/// A host with stand-ins for a manager's programs, which keep their files in its folder.
struct Host {
    root: tempfile::TempDir,
    folder: RunDir,
}

impl Host {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let folder = RunDir::open_for_agent(root.path().join("run")).expect("a run folder");
        fs::create_dir(root.path().join("bin")).expect("a folder");
        Self { root, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A program, to which `$root` is the host's folder.
    fn with(self, name: &str, script: &str) -> Self {
        let (path, draft) = (self.path("bin").join(name), self.path("draft"));
        let text = format!("#!/bin/sh\nroot={}\n{script}\n", self.root.path().display());
        fs::write(&draft, text).expect("written");
        // Written by this process, it would be busy while a child of another test has it open still.
        assert!(Command::new("cp").args([&draft, &path]).status().expect("cp runs").success());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
        self
    }

    fn booked(self, booking: &BookingId) -> Self {
        self.folder.begin_booking(booking, &Booked::default()).expect("booked");
        self
    }

    fn probe(&self, manager: Manager, patience: Patience) -> Vec<Finding> {
        self.probe_as(manager, patience, &Options::default())
    }

    fn probe_as(&self, manager: Manager, patience: Patience, options: &Options) -> Vec<Finding> {
        let job = adapter::of(manager).probe_job(options).expect("it runs jobs");
        let programs = format!("{}:/usr/bin:/bin", self.path("bin").display());
        let site = Site::below(self.root.path()).with_programs(programs);
        assert!(site.has_program(job.program));
        let found = job.run(&site, self.folder.path(), &self.folder, patience);
        found.unwrap_or_else(|refused| vec![refused])
    }

    /// Levels and words of what a probe finds.
    fn finds(&self, manager: Manager) -> (Vec<Level>, String) {
        let found = self.probe(manager, SHORT);
        (found.iter().map(|one| one.level).collect(), format!("{found:#?}"))
    }
}

const SHORT: Patience = Patience { job: Span::from_secs(20), end: Span::from_millis(100) };
const FIRED: [Level; 2] = [Level::Good, Level::Good];

/// Its last word is the job, and its hook after it ends the booking.
const SRUN: &str = r#"echo "$*" > "$root/asked"
for job; do :; done
SLURM_JOB_ID=7 sh -c "$job"; ended=$?
rm -f "$root"/run/*/bookings/b-slurm:7
exit "$ended""#;

/// Reads the job, and writes what it prints where `-o` says.
const QSUB_OF_GRID_ENGINE: &str = r#"echo "$*" > "$root/asked"
while [ "$1" != -o ]; do shift; done
JOB_ID=12 sh > "$2"
rm -f "$root"/run/*/bookings/b-grid-engine:12.0"#;

/// Reads the job, and drops what it prints.
const QSUB_OF_PBS: &str = r#"echo "$*" > "$root/asked"
PBS_JOBID=34.head sh > /dev/null
rm -f "$root"/run/*/bookings/b-pbs:34.head"#;

const CONDOR_SUBMIT: &str = r#"echo 'GlobalJobId = "head.farm#12.0#1700000000"' > "$root/ad"
cp "$2" "$root/asked"
_CONDOR_JOB_AD=$root/ad "$(sed -n 's/^executable = //p' "$2")" > "$(sed -n 's/^output = //p' "$2")"
: > "$(sed -n 's/^error = //p' "$2")"
rm -f "$root"/run/*/bookings/b-htcondor:head.farm+12.0+*
echo "12.0 - 12.0""#;

fn id(text: &str) -> BookingId {
    BookingId::new(text).expect("plain")
}

#[test]
fn a_job_that_finds_its_booking_shows_that_hooks_fire() {
    let slurm = Host::new().with("srun", SRUN).booked(&id("slurm:7"));
    let grid_engine = Host::new().with("qsub", QSUB_OF_GRID_ENGINE).booked(&id("grid-engine:12.0"));
    let pbs = Host::new().with("qsub", QSUB_OF_PBS).booked(&id("pbs:34.head"));
    let job = booking_of("htcondor", "head.farm#12.0#1700000000");
    let condor =
        Host::new().with("condor_submit", CONDOR_SUBMIT).with("condor_wait", "exit 0").booked(&job);
    for (manager, host) in [
        (Manager::Slurm, &slurm),
        (Manager::GridEngine, &grid_engine),
        (Manager::OpenPbs, &pbs),
        (Manager::HtCondor, &condor),
    ] {
        let (levels, said) = host.finds(manager);
        assert_eq!(levels, FIRED, "{manager}: {said}");
    }
    let asked = fs::read_to_string(pbs.path("asked")).expect("asked");
    assert!(asked.contains("-W block=true"), "{asked}");
    let asked = fs::read_to_string(condor.path("asked")).expect("asked");
    assert!(asked.contains("requirements = (Machine == \""), "{asked}");
}

#[test]
fn a_job_goes_to_the_queue_that_is_named_and_else_where_the_site_has_them_go() {
    let named = Options { probe_queue: Some("low".into()), ..Options::default() };
    for (manager, program, script, word) in [
        (Manager::Slurm, "srun", SRUN, "--partition=low"),
        (Manager::GridEngine, "qsub", QSUB_OF_GRID_ENGINE, "-q low"),
        (Manager::OpenPbs, "qsub", QSUB_OF_PBS, "-q low"),
    ] {
        let host = Host::new().with(program, script);
        let asked = |options: &Options| {
            host.probe_as(manager, SHORT, options);
            fs::read_to_string(host.path("asked")).expect("asked")
        };
        assert!(asked(&named).contains(word), "{manager}");
        assert!(!asked(&Options::default()).contains(word), "{manager}");
    }
}

#[test]
fn a_job_without_its_booking_shows_that_none_has() {
    for (manager, host) in [
        (Manager::Slurm, Host::new().with("srun", SRUN)),
        (Manager::GridEngine, Host::new().with("qsub", QSUB_OF_GRID_ENGINE)),
        (Manager::OpenPbs, Host::new().with("qsub", QSUB_OF_PBS)),
        (
            Manager::HtCondor,
            Host::new().with("condor_submit", CONDOR_SUBMIT).with("condor_wait", "exit 0"),
        ),
    ] {
        // Another job's is not this one's.
        let host = host.booked(&id("slurm:8"));
        let (levels, said) = host.finds(manager);
        assert_eq!(levels, [Level::Wrong], "{manager}: {said}");
        assert!(said.contains("ran without its booking"), "{manager}: {said}");
    }
}

#[test]
fn a_booking_that_outlives_its_job_shows_that_no_hook_came_after_it() {
    let host = Host::new()
        .with("srun", "for job; do :; done\nSLURM_JOB_ID=7 exec sh -c \"$job\"")
        .booked(&id("slurm:7"));
    let (levels, said) = host.finds(Manager::Slurm);
    assert_eq!(levels, [Level::Good, Level::Wrong], "{said}");
    assert!(said.contains("no hook fired after it"), "{said}");
}

#[test]
fn a_job_elsewhere_shows_nothing() {
    let host = Host::new().with("srun", SRUN).with("uname", "echo render043");
    let (levels, said) = host.finds(Manager::Slurm);
    assert_eq!(levels, [Level::Note], "{said}");
    assert!(said.contains("ran on render043") && said.contains("--node"), "{said}");
    // What it wrote is there, where nobody looks.
    let host = Host::new().with("qsub", "exit 0");
    let (levels, said) = host.finds(Manager::OpenPbs);
    assert_eq!(levels, [Level::Note], "{said}");
    assert!(said.contains("said \\\"\\\" instead of its host"), "{said}");
}

#[test]
fn one_that_is_refused_or_never_begins_is_said_and_taken_away() {
    let host = Host::new().with("srun", "echo 'Requested nodes are busy' >&2; exit 1");
    let refuses = |name| Host::new().with(name, "echo 'no jobs of root' >&2; exit 1");
    let (levels, said) = host.finds(Manager::Slurm);
    assert_eq!(levels, [Level::Note], "{said}");
    assert!(said.contains("nodes are busy"), "{said}");
    for (manager, host) in [
        (Manager::GridEngine, refuses("qsub")),
        (Manager::OpenPbs, refuses("qsub")),
        (Manager::HtCondor, refuses("condor_submit").with("condor_wait", "exit 0")),
    ] {
        let (levels, said) = host.finds(manager);
        assert_eq!(levels, [Level::Note], "{manager}: {said}");
        assert!(said.contains("no jobs of root"), "{manager}: {said}");
    }

    let hangs = Host::new().with("srun", "exec sleep 1000");
    let found = hangs.probe(Manager::Slurm, Patience { job: Span::from_millis(200), ..SHORT });
    assert!(found[0].what.contains("did not end within"), "{found:?}");

    let log = "echo \"${0##*/} $*\" >> \"$root/told\"";
    let waits = |host: Host| {
        // The time is over.
        host.with("timeout", "exit 124").with("qsub", "exit 1").with("qdel", log)
    };
    let grid_engine = waits(Host::new());
    let pbs = waits(Host::new()).with("qselect", "echo 34.head");
    let condor = Host::new()
        .with("condor_submit", "echo '12.0 - 12.0'")
        .with("condor_wait", "exit 1")
        .with("condor_rm", log);
    for (manager, host, told) in [
        (Manager::GridEngine, grid_engine, "qdel gleaner"),
        (Manager::OpenPbs, pbs, "qdel 34.head\n"),
        (Manager::HtCondor, condor, "condor_rm 12.0\n"),
    ] {
        let (levels, said) = host.finds(manager);
        assert_eq!(levels, [Level::Note], "{manager}: {said}");
        let log = fs::read_to_string(host.path("told")).expect("told");
        assert!(log.starts_with(told), "{manager}: {log}");
    }
}
