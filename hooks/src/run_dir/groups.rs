//! Process groups of harvested work in the run folder, and how a hook stops them by itself.
//!
//! # Invariants
//! - A group is signalled only while it is the one that was recorded. Its leader lives with the
//!   recorded start time; or the leader is gone and a member is left that started no earlier, in
//!   the recorded session and of the recorded user. (The kernel does not give a number away as
//!   long as a group bears it, so a leader with another start time means that the group is gone.)
//! - A record has only its writer's own processes signalled, unless root has written it. What others
//!   may have written is no record, and nor is a link: what it leads to may be root's, whoever laid it.
//! - The caller's own group is never signalled.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gleaner_isolation::Marks;
use gleaner_protocol::Span;

use super::{RunDirError, names, read_small_of_one, write_new_of_one};
use crate::family::{Relative, Walk};
use crate::last_run::{let_end, let_sessions_end};
use crate::limits::{STOP_WAIT, STOP_WALK};
use crate::process_group::{self, Member, ProcessStat, TaskGroup};

/// Its folder below a life.
pub(super) const FOLDER: &str = "groups";

/// What [`crate::RunDir::stop_groups`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StopReport {
    /// Groups that were frozen and killed.
    pub stopped: u32,
    /// Groups that were gone already.
    pub gone: u32,
    /// Killed groups whose leaders had not ended when the wait was over.
    pub lingering: u32,
    /// What went wrong, in words.
    pub troubles: Vec<String>,
}

/// A group's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    group: TaskGroup,
    /// Of the leader, where it was still there to ask.
    session: Option<i32>,
    uid: Option<u32>,
    /// Who wrote the record.
    writer: u32,
}

impl Record {
    /// Whether its writer may have a process of this user stopped.
    const fn may_stop(&self, uid: u32) -> bool {
        self.writer == ROOT || self.writer == uid
    }
}

const ROOT: u32 = 0;
/// Not a number that a group may have.
const NO_GROUP: i32 = 0;

enum Standing {
    LeaderLives,
    /// Its leader lives and belongs to somebody whom the record's writer has no say over.
    Foreign(u32),
    /// The leader has ended; others of the group have not.
    MembersLive,
    Gone,
}

pub(super) fn register(life: &Path, group: &TaskGroup) -> Result<(), RunDirError> {
    let TaskGroup { pgid, leader_start_ticks } = *group;
    let session = ProcessStat::of(pgid)
        .ok()
        .filter(|stat| stat.start_ticks == leader_start_ticks)
        .map_or(0, |stat| stat.session);
    let uid = uid_of(pgid).map_or(-1, i64::from);
    write_new_of_one(life, format!("{leader_start_ticks} {session} {uid}\n").as_bytes())?
        .replace(&path_of(life, pgid))
}

pub(super) fn forget(life: &Path, pgid: i32) -> Result<(), RunDirError> {
    let path = path_of(life, pgid);
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(RunDirError::io("remove", &path, source))
        }
        _ => Ok(()),
    }
}

pub(super) fn list(life: &Path) -> Result<Vec<TaskGroup>, RunDirError> {
    let mut groups: Vec<TaskGroup> = records(life)?.0.iter().map(|record| record.group).collect();
    groups.sort_unstable();
    Ok(groups)
}

pub(super) fn stop_all(life: &Path) -> StopReport {
    stop_all_within(life, STOP_WALK)
}

/// Looks for what the groups have started for this long, twice. The groups themselves stop however
/// long that is.
fn stop_all_within(life: &Path, limit: Span) -> StopReport {
    let mut report = StopReport::default();
    let records = match records(life) {
        Ok((records, unreadable)) => {
            report.troubles.extend(unreadable.iter().map(ToString::to_string));
            records
        }
        Err(error) => {
            report.troubles.push(error.to_string());
            return report;
        }
    };
    let enclosure = super::enclosure::marks(life).unwrap_or_else(|error| {
        report.troubles.push(error.to_string());
        Marks::default()
    });
    let targets = living(life, &records, &mut report);
    let watched: Vec<_> = targets.iter().filter_map(|pgid| process_group::watch(*pgid)).collect();
    // All are told to stop before anything is looked for, and before the first is killed: what runs
    // on a core that a render wants stops first, the tidying of memory comes second.
    for pgid in &targets {
        let _ = process_group::tell_to_stop(*pgid);
    }
    // Where there is a freezer it reaches what has left its group as well.
    if !enclosure.is_empty() && enclosure.freeze().is_ok() {
        match enclosure.kill() {
            // What comes into it later is to run.
            Ok(()) => drop(enclosure.thaw()),
            Err(error) => report.troubles.push(format!("cannot kill a control group: {error}")),
        }
    }
    let_sessions_end(&targets);
    // Of what that has killed no family is left to be looked for.
    let mut walk = Walk::of(limit);
    let strays: Vec<Vec<Relative>> =
        targets.iter().map(|pgid| process_group::stop_family(*pgid, &mut walk)).collect();
    if walk.is_over() {
        report.troubles.push(format!(
            "not all that {} task groups have started was looked for within {limit}: what has left \
             its group may run on",
            targets.len()
        ));
    }
    let mut killed = Vec::with_capacity(targets.len());
    for (pgid, strays) in targets.into_iter().zip(&strays) {
        match process_group::kill_with(pgid, strays) {
            Ok(()) => killed.push(pgid),
            Err(error) if error.raw_os_error() == Some(ESRCH) => {
                report.gone += 1;
                let _ = forget(life, pgid);
            }
            Err(error) => report.troubles.push(format!("cannot stop task group {pgid}: {error}")),
        }
    }
    let mut walk = Walk::of(limit);
    killed.iter().for_each(|pgid| let_end(*pgid, &mut walk));
    report.stopped = u32::try_from(killed.len()).unwrap_or(u32::MAX);
    let lingering = process_group::wait_all(&watched, STOP_WAIT);
    report.lingering = u32::try_from(lingering).unwrap_or(u32::MAX);
    for pgid in killed {
        let _ = forget(life, pgid);
    }
    report
}

/// Numbers of the groups that are to be signalled; those that are gone are forgotten.
fn living(life: &Path, records: &[Record], report: &mut StopReport) -> Vec<i32> {
    // In a container our group may be outside, and none of those here.
    let own = ProcessStat::of(rustix::process::getpid().as_raw_nonzero().get());
    let own = own.map_or(NO_GROUP, |stat| stat.pgid);
    let mut members: Option<Vec<Member>> = None;
    let mut targets = Vec::with_capacity(records.len());
    for record in records {
        let pgid = record.group.pgid;
        match standing(record, &mut members) {
            _ if pgid == own => {
                report.troubles.push(format!("task group {pgid} is the hook's own: left alone"));
            }
            Standing::LeaderLives | Standing::MembersLive => targets.push(pgid),
            Standing::Foreign(uid) => report.troubles.push(format!(
                "task group {pgid} of user {uid} was recorded by user {}: left alone",
                record.writer
            )),
            Standing::Gone => {
                report.gone += 1;
                let _ = forget(life, pgid);
            }
        }
    }
    targets
}

fn standing(record: &Record, members: &mut Option<Vec<Member>>) -> Standing {
    let TaskGroup { pgid, leader_start_ticks } = record.group;
    match ProcessStat::of(pgid) {
        Ok(leader) if leader.start_ticks != leader_start_ticks => return Standing::Gone,
        // A dead leader that nobody has taken note of yet still has its number, and others of
        // its group may live.
        Ok(_) => match uid_of(pgid) {
            Some(uid) if !record.may_stop(uid) => return Standing::Foreign(uid),
            _ => return Standing::LeaderLives,
        },
        Err(_) => {}
    }
    let ours = |member: &Member| {
        member.stat.pgid == pgid
            && member.stat.start_ticks >= leader_start_ticks
            && record.session.is_none_or(|session| session == member.stat.session)
            && record.uid.is_none_or(|uid| uid == member.uid)
            && record.may_stop(member.uid)
    };
    match members.get_or_insert_with(process_group::all_members).iter().any(ours) {
        true => Standing::MembersLive,
        false => Standing::Gone,
    }
}

/// Whose process this is.
fn uid_of(pid: i32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|proc| proc.uid())
}

/// All records, and why others could not be read: theirs may be groups that run.
fn records(life: &Path) -> Result<(Vec<Record>, Vec<RunDirError>), RunDirError> {
    let folder = life.join(FOLDER);
    let (mut records, mut unreadable) = (Vec::new(), Vec::new());
    for name in names(&folder)? {
        match read(&folder, &name) {
            Ok(record) => records.extend(record),
            Err(source) if source.kind() == io::ErrorKind::NotFound => {}
            Err(source) => unreadable.push(RunDirError::io("read", &folder.join(name), source)),
        }
    }
    Ok((records, unreadable))
}

/// None where it is no group's file.
fn read(folder: &Path, name: &str) -> io::Result<Option<Record>> {
    let Some(pgid) = name.parse().ok().filter(|pgid| *pgid > 1) else { return Ok(None) };
    let (writer, bytes) = read_small_of_one(&folder.join(name))?;
    Ok(str::from_utf8(&bytes).ok().and_then(|text| parse(pgid, writer, text)))
}

fn parse(pgid: i32, writer: u32, text: &str) -> Option<Record> {
    let mut words = text.split_ascii_whitespace();
    let leader_start_ticks = words.next()?.parse().ok()?;
    let session = words.next().and_then(|word| word.parse().ok()).filter(|session| *session > 0);
    let uid = words.next().and_then(|word| word.parse().ok());
    Some(Record { group: TaskGroup { pgid, leader_start_ticks }, session, uid, writer })
}

fn path_of(life: &Path, pgid: i32) -> PathBuf {
    life.join(FOLDER).join(pgid.to_string())
}

const ESRCH: i32 = rustix::io::Errno::SRCH.raw_os_error();

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Groups of this many threads each, which spin as long as this process lives, and in each a
    /// child that has left it.
    fn recorded(life: &Path, count: usize, threads: usize) -> (Vec<Child>, Vec<i32>) {
        fs::create_dir(life.join(FOLDER)).expect("made");
        fs::create_dir(life.join("new")).expect("made");
        let script = format!(
            "import os, subprocess, threading
parent = os.getppid()
def spin():
    while os.getppid() == parent: pass
stray = subprocess.Popen(['sleep', '1000'], start_new_session=True)
[threading.Thread(target=spin, daemon=True).start() for _ in range({threads})]
print(stray.pid, flush=True)
spin()"
        );
        let start = || {
            let mut python = Command::new("python3");
            python.args(["-c", &script]).process_group(0).stdout(Stdio::piped());
            let mut leader = python.spawn().expect("it is there");
            let mut line = String::new();
            let stdout = leader.stdout.take().expect("piped");
            BufReader::new(stdout).read_line(&mut line).expect("a line");
            let pid = i32::try_from(leader.id()).expect("a number");
            register(life, &TaskGroup::of_leader(pid).expect("it leads")).expect("recorded");
            (leader, line.trim().parse::<i32>().expect("a number"))
        };
        (0..count).map(|_| start()).unzip()
    }

    fn were_killed(leaders: &mut [Child]) -> bool {
        leaders.iter_mut().all(|one| one.wait().expect("ours").signal() == Some(9))
    }

    #[test]
    fn all_groups_stop_though_there_is_no_time_to_look_for_what_they_started() {
        let life = tempfile::tempdir().expect("a folder");
        let (mut leaders, strays) = recorded(life.path(), 3, 16);
        let report = stop_all_within(life.path(), Span::ZERO);
        assert_eq!(report.stopped, 3);
        assert!(report.troubles[0].contains("may run on"), "{report:?}");
        assert!(were_killed(&mut leaders));
        for stray in strays {
            let stray = rustix::process::Pid::from_raw(stray).expect("a number");
            let ended = rustix::process::kill_process(stray, rustix::process::Signal::KILL);
            ended.expect("it was left alone");
        }
    }

    #[test]
    fn what_has_left_its_group_is_killed_with_it() {
        let life = tempfile::tempdir().expect("a folder");
        let (mut leaders, strays) = recorded(life.path(), 3, 16);
        let watched: Vec<_> = strays.iter().filter_map(|pid| process_group::watch(*pid)).collect();
        // As long as nobody renders there is time.
        let report = stop_all_within(life.path(), Span::from_secs(20));
        assert_eq!((report.stopped, report.troubles), (3, Vec::new()));
        assert!(were_killed(&mut leaders));
        assert_eq!((watched.len(), process_group::wait_all(&watched, Span::from_secs(20))), (3, 0));
    }

    #[test]
    fn what_somebody_else_may_have_laid_or_written_is_no_record() {
        let life = tempfile::tempdir().expect("a folder");
        fs::set_permissions(life.path(), Permissions::from_mode(0o775)).expect("shared");
        let (mut leaders, _strays) = recorded(life.path(), 1, 1);
        let pgid = i32::try_from(leaders[0].id()).expect("a number");
        let (place, elsewhere) = (path_of(life.path(), pgid), life.path().join("elsewhere"));
        let mut is_left_alone = |why: &str| {
            let report = stop_all_within(life.path(), Span::from_secs(20));
            assert_eq!(report.stopped, 0, "{report:?}");
            assert!(report.troubles[0].contains(why), "{report:?}");
            assert!(leaders[0].try_wait().expect("ours").is_none(), "it runs on");
        };
        fs::rename(&place, &elsewhere).expect("moved");
        symlink(&elsewhere, &place).expect("laid");
        is_left_alone("symbolic links");
        fs::rename(&elsewhere, &place).expect("moved");
        let mode = fs::metadata(&place).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o644, "though the folder is a group's");
        fs::set_permissions(&place, Permissions::from_mode(0o664)).expect("opened");
        is_left_alone("others than its owner");
        fs::set_permissions(&place, Permissions::from_mode(mode)).expect("closed");
        assert_eq!(stop_all_within(life.path(), Span::from_secs(20)).stopped, 1);
        assert!(were_killed(&mut leaders));
    }
}
