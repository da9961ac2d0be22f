//! What a command cannot do to the machine that it runs on, tried from inside and judged from
//! outside: for an agent that is root, for one that is an ordinary user, and for one that may make
//! no namespaces.

mod shown;
mod workers;

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::chown;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use gleaner_agent::{CommandRules, Config, Confine, Isolation};
use gleaner_hooks::{SocketAnswer, SocketRequest};
use gleaner_protocol::control::{AgentMessage, Hello, ReleaseReason, Report};
use gleaner_protocol::job::Task;

use crate::Story;
use crate::agent::{AgentProcess, Folders, Handicap, block_on};
use crate::broker::{Broker, Session, command, command_with, failure, output, script, text};
use crate::isolation::{bomb, probes};
use crate::probe::{CALLS, PROBE_ARGUMENT};
use crate::watch::{marked, wait_until};

pub(crate) const STORIES: &[Story] = &[
    ("a_command_reads_nothing_of_its_host_but_the_system", reads_nothing_of_its_host),
    ("a_command_writes_nothing_but_its_folder", writes_nothing_but_its_folder),
    ("a_command_has_no_network", has_no_network),
    ("a_command_reaches_no_other_process", reaches_no_other_process),
    ("a_command_has_no_rights_and_gets_none", has_no_rights_and_gets_none),
    ("nothing_of_one_command_is_there_for_another", nothing_is_there_for_another),
    ("a_command_that_leaves_too_much_is_ended", leaves_too_much_is_ended),
    ("what_forks_away_from_a_command_ends_with_it", what_forks_away_ends_with_it),
    ("a_fork_bomb_that_no_group_counts_ends_at_its_limit", a_bomb_that_no_group_counts_ends),
    ("an_owner_shows_commands_more_but_never_the_agents_own", shown::an_owner_shows_more),
    ("a_command_of_an_unlisted_user_has_a_group_that_is_nobodys", has_a_group_that_is_nobodys),
    ("what_the_host_mounts_later_is_read_only_to_commands", shown::mounted_later_is_read_only),
    ("commands_are_refused_where_nothing_confines_them", refused_where_nothing_confines),
    ("an_owner_may_have_commands_run_all_the_same", an_owner_may_have_them_run),
    (
        "a_module_runs_as_another_user_behind_walls",
        workers::a_module_runs_as_another_user_behind_walls,
    ),
    (
        "one_worker_serves_many_orders_and_a_command_ends_it",
        workers::one_worker_serves_many_orders_and_a_command_ends_it,
    ),
];

/// A kind of host.
#[derive(Debug, Clone, Copy)]
struct Kind {
    /// As whom its agent runs; as this test where nothing is said.
    user: Option<u32>,
    /// What is taken from it.
    handicap: Handicap,
}

/// An ordinary user that no test machine has.
const ORDINARY: u32 = 54_321;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Those on which commands are to run, as far as this kernel has what they need.
fn kinds() -> Vec<Kind> {
    let ordinary = is_root().then_some(ORDINARY);
    let mut kinds = vec![
        Kind { user: ordinary, handicap: Handicap::None },
        Kind { user: ordinary, handicap: Handicap::NoNamespaces },
    ];
    if is_root() {
        kinds.push(Kind { user: None, handicap: Handicap::None });
    }
    kinds
}

/// A host and what runs on it.
struct Host {
    agent: AgentProcess,
    folders: Folders,
    session: Session,
    hello: Hello,
    kind: Kind,
    broker: Broker,
}

impl Host {
    async fn start(kind: Kind, change: impl FnOnce(&Folders, &mut Config)) -> Self {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut config = folders.config(&broker.address, 2);
        config.allow_commands.push(folders.probe());
        let key = gleaner_identity::KeyPair::generate().expect("made");
        key.write_new(&folders.path("key")).expect("written");
        config.key_file = Some(folders.path("key"));
        change(&folders, &mut config);
        if let Some(user) = kind.user {
            for path in [folders.path(""), folders.path("key")] {
                chown(path, Some(user), Some(user)).expect("we are root");
            }
        }
        let agent = AgentProcess::start_as(&config, &folders, kind.user, kind.handicap);
        let (session, hello) = broker.welcome().await;
        Self { folders, session, hello, kind, agent, broker }
    }

    /// What the agent says of commands to whoever asks for its status.
    fn says(&self) -> String {
        match self.folders.ask(&SocketRequest::Standing) {
            SocketAnswer::Standing(standing) => standing.commands.expect("some are listed"),
            other => panic!("{other:?}"),
        }
    }

    /// Whether commands run here. Where they do not the agent says so to everybody.
    fn runs_commands(&self) -> bool {
        let said = self.says();
        let offered = !self.hello.host.capabilities.commands.is_empty();
        assert_eq!(offered, said.starts_with("confined by "), "{:?}: {said}", self.kind);
        if !offered {
            // This kernel is too old for what is left without namespaces, or forbids them to all.
            assert!(said.starts_with("refused: a command"), "{said}");
            println!("{:?}: {said}", self.kind);
        }
        offered
    }

    fn has_namespaces(&self) -> bool {
        self.says().contains("namespaces")
    }

    /// Has a task try things: what, and with what. Returns what came of each.
    async fn probe(&mut self, tries: &[(&str, &str)]) -> Vec<String> {
        let report = self.session.perform(self.probing(tries), None).await;
        let printed = text(&report, "stdout");
        let answers: Vec<_> = printed
            .lines()
            .zip(tries)
            .map(|(line, (what, with))| {
                let head = format!("{what} {with}: ");
                line.strip_prefix(&head).expect("in order").to_owned()
            })
            .collect();
        assert_eq!(answers.len(), tries.len(), "{printed}");
        answers
    }

    fn probing(&self, tries: &[(&str, &str)]) -> Task {
        let probe = self.folders.path("probe");
        let mut argv = vec![probe.to_str().expect("plain"), PROBE_ARGUMENT];
        argv.extend(tries.iter().flat_map(|(what, with)| [*what, *with]));
        command(&argv)
    }

    fn path(&self, name: &str) -> String {
        self.folders.path(name).to_str().expect("plain").to_owned()
    }
}

/// Plays a story on every kind of host that runs commands.
fn on_each(change: impl Fn(&Folders, &mut Config), story: impl AsyncFn(&mut Host)) {
    let mut played = 0;
    for kind in kinds() {
        block_on(async {
            let mut host = Host::start(kind, &change).await;
            if host.runs_commands() {
                story(&mut host).await;
                played += 1;
            }
        });
    }
    println!("played on {played} kinds of host");
}

fn as_they_come(_: &Folders, _: &mut Config) {}

fn reads_nothing_of_its_host() {
    on_each(as_they_come, async |host| {
        let home = std::env::var("HOME").unwrap_or_else(|_| "/root".into());
        let (key, cache, run) = (host.path("key"), host.path("work/cache"), host.path("run"));
        let config = host.path("agent.json");
        let tries = [
            ("read", "/etc/shadow"),
            ("read", &key),
            ("read", &config),
            ("list", &cache),
            ("list", &run),
            ("list", &home),
            ("list", "/var/log"),
        ];
        for (answer, (_, path)) in host.probe(&tries).await.iter().zip(tries) {
            // Of home folders there is the name, and nothing in it.
            let is_hidden = is_refused(answer) || (path == home && answer == "0 entries");
            assert!(is_hidden, "{:?}, {path}: {answer}", host.kind);
        }
        let answers = host.probe(&[("read", "/bin/sh"), ("list", "/usr/bin")]).await;
        assert_eq!(answers[0], "ok", "{:?}", host.kind);
        assert!(answers[1].ends_with(" entries") && answers[1] != "0 entries", "{answers:?}");
    });
}

fn a_bomb_that_no_group_counts_ends() {
    let in_process_groups =
        |_: &Folders, config: &mut Config| config.isolation = Isolation::ProcessGroups;
    on_each(in_process_groups, async |host| {
        let report = host.session.perform(bomb(&host.folders), None).await;
        let said = failure(&report);
        let is_refused = said.contains("no more threads") && host.has_namespaces();
        let is_ended = said.contains("more than 1024 processes") && !host.has_namespaces();
        assert!(is_refused || is_ended, "{:?}: {said}", host.kind);
        wait_until("its end", || probes(&host.folders).is_empty());
        host.session.perform(script("true"), None).await;
    });
}

/// Not there, or not to be had.
fn is_refused(answer: &str) -> bool {
    ["No such file", "Permission denied"].iter().any(|refusal| answer.starts_with(refusal))
}

fn writes_nothing_but_its_folder() {
    on_each(as_they_come, async |host| {
        let beside = host.path("beside");
        let in_tmp = format!("/tmp/gleaner-story-{}", std::process::id());
        let in_work = host.path("work/tasks/beside");
        let tries = [
            ("write", "/usr/bin/gleaner-story"),
            ("write", "/etc/gleaner-story"),
            ("write", &beside),
            ("write", &in_work),
            ("write", "/proc/self/oom_score_adj"),
            ("write", "/proc/sys/kernel/core_pattern"),
            ("write", "/sys/devices/system/cpu/online"),
        ];
        for answer in host.probe(&tries).await {
            let refused = is_refused(&answer) || answer.starts_with("Read-only file system");
            assert!(refused, "{:?}: {answer}", host.kind);
        }
        for path in ["/usr/bin/gleaner-story", "/etc/gleaner-story", &beside, &in_work] {
            assert!(fs::symlink_metadata(path).is_err(), "{path}");
        }
        let answers = host.probe(&[("write", "mine"), ("write", "/dev/null")]).await;
        assert_eq!(answers, ["ok", "ok"], "{:?}", host.kind);
        let temporary = format!("echo x > ${{TMPDIR}}/mine && cat $TMPDIR/mine; echo y > {in_tmp}");
        let report = host.session.perform(script(&temporary), None).await;
        if host.has_namespaces() {
            output(&report);
        } else {
            assert!(failure(&report).contains("Permission denied"), "{report:?}");
        }
        assert!(fs::symlink_metadata(&in_tmp).is_err(), "no /tmp but its own");
        // An output is a file of its own folder, and nothing that leads elsewhere.
        let key = host.path("key");
        for (text, says) in [
            (format!("ln -s {key} out"), "symbolic link"),
            ("ln -s /etc/passwd out".into(), "symbolic link"),
            (format!("ln {key} out; true"), "was not written"),
            ("mkfifo out".into(), "no regular file"),
            ("ln -s . folder; echo x > folder/out; rm out; ln -s out out".into(), "symbolic link"),
        ] {
            let task = command_with(&["/bin/sh", "-c", &text], &[], &["out"]);
            let report = host.session.perform(task, None).await;
            assert!(failure(&report).contains(says), "{:?}, {text}: {report:?}", host.kind);
        }
    });
}

fn has_no_network() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    udp.set_nonblocking(true).expect("ours");
    let name = format!("gleaner-story-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("short");
    let _listener = UnixListener::bind_addr(&address).expect("free");
    let tcp = tcp.local_addr().expect("bound").to_string();
    let udp_address = udp.local_addr().expect("bound").to_string();
    on_each(as_they_come, async |host| {
        let socket = host.folders.run_dir().socket_path().to_str().expect("plain").to_owned();
        let tries =
            [("tcp", &*tcp), ("udp", &*udp_address), ("abstract", &*name), ("socket", &*socket)];
        let answers = host.probe(&tries).await;
        for (answer, (what, _)) in answers.iter().zip(tries) {
            assert_ne!(answer, "ok", "{:?}: {what}", host.kind);
        }
        for answer in &answers[..2] {
            assert!(answer.starts_with("Address family not supported"), "{answer}");
        }
        assert!(udp.recv(&mut [0]).is_err(), "nothing came");
    });
    // Where its owner allows it, all but the machine's own sockets.
    let allowed = |_: &Folders, config: &mut Config| config.commands.network = true;
    on_each(allowed, async |host| {
        let tries = [("tcp", &*tcp), ("udp", &*udp_address), ("abstract", &*name)];
        let answers = host.probe(&tries).await;
        assert_eq!(answers[..2], ["ok", "ok"], "{:?}", host.kind);
        assert_ne!(answers[2], "ok", "{:?}", host.kind);
        assert!(udp.recv(&mut [0]).is_ok(), "it came");
        assert!(host.says().ends_with("with the network"), "{}", host.says());
    });
    // Nobody counts what it carries: where its owner limits that, it has none.
    let limited = |folders: &Folders, config: &mut Config| {
        allowed(folders, config);
        config.preferences.network_mib_per_day = 1_000;
    };
    on_each(limited, async |host| {
        let answers = host.probe(&[("tcp", &*tcp), ("udp", &*udp_address)]).await;
        assert!(answers.iter().all(|answer| answer != "ok"), "{:?}: {answers:?}", host.kind);
        assert!(host.says().contains("network_mib_per_day"), "{}", host.says());
    });
}

fn reaches_no_other_process() {
    on_each(as_they_come, async |host| {
        let test = std::process::id().to_string();
        let agent = host.agent.pid().to_string();
        let runner = host.folders.groups().first().map_or(agent.clone(), ToString::to_string);
        let tries =
            [("signal", &*test), ("signal", &*agent), ("signal", &*runner), ("sees", &*test)];
        let answers = host.probe(&tries).await;
        for answer in &answers[..3] {
            let says = ["No such process", "Operation not permitted"];
            assert!(says.iter().any(|says| answer.starts_with(says)), "{:?}: {answer}", host.kind);
        }
        // Without namespaces it sees them, and the agent says so.
        assert_eq!(answers[3] == "ok", !host.has_namespaces(), "{:?}", host.kind);
        assert_eq!(host.says().contains("a command sees the names"), !host.has_namespaces());
    });
}

fn has_no_rights_and_gets_none() {
    on_each(as_they_come, async |host| {
        let tries = CALLS.map(|name| ("call", name));
        for (answer, name) in host.probe(&tries).await.iter().zip(CALLS) {
            let refused = [libc::EPERM, libc::ENOSYS].map(|errno| errno.to_string());
            assert!(refused.contains(answer), "{:?}: {name}: {answer}", host.kind);
        }
        let keys = ["Uid", "Gid", "Groups", "CapEff", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp"];
        let status = host.probe(&keys.map(|key| ("status", key))).await;
        let none = "0000000000000000";
        assert_eq!(status[3..5], [none, none], "{:?}", host.kind);
        assert_eq!(status[6..], ["1", "2"], "{:?}", host.kind);
        let user: u32 = status[0].split(' ').next().and_then(|id| id.parse().ok()).expect("a user");
        if host.kind.user.is_none() && is_root() {
            // A user that nobody else has, with no group of root's.
            assert!((60_800..61_184).contains(&user), "{status:?}");
            assert_eq!((status[2].trim(), &*status[5]), ("", none), "{status:?}");
        } else {
            let own = rustix::process::geteuid().as_raw();
            assert_eq!(user, host.kind.user.unwrap_or(own), "{status:?}");
        }
        let limits = host.session.perform(script("ulimit -c; ulimit -f"), None).await;
        assert_eq!(text(&limits, "stdout"), "0\n2097152\n", "no core, at most 1 GiB a file");
    });
}

fn nothing_is_there_for_another() {
    on_each(as_they_come, async |host| {
        let leave = "echo secret > mine; echo secret > $TMPDIR/mine; chmod 777 . mine $TMPDIR/mine; \
                     mkdir -p a/b && chmod 0 a; pwd; echo $TMPDIR";
        let left = host.session.perform(script(leave), None).await;
        let look = "ls -A . $TMPDIR | grep -v ':$' | grep .; true";
        let found = host.session.perform(script(look), None).await;
        assert_eq!(text(&found, "stdout"), "", "{:?}: {left:?}", host.kind);
        // While one runs in the other slot, its folder cannot be looked into either.
        let marker = marker("neighbour");
        let stay = format!("echo secret > mine; chmod 777 . mine; sleep {marker}");
        host.session.give(script(&stay), &[None]).await;
        wait_until("the neighbour", || marked(&marker).len() == 2);
        let tasks = host.path("work/tasks");
        let secrets = find(Path::new(&tasks), "mine");
        assert_eq!(secrets.len(), 1, "{secrets:?}");
        let secret = secrets[0].to_str().expect("plain");
        let answers = host.probe(&[("read", secret), ("list", &tasks), ("link", secret)]).await;
        assert!(answers[..2].iter().all(|answer| is_refused(answer)), "{answers:?}");
        assert_ne!(answers[2], "ok");
        let look = format!("cat {secret} {tasks}/*/*/*/mine; cat /task/../*/mine; true");
        let found = host.session.perform(script(&look), None).await;
        assert_eq!(text(&found, "stdout"), "", "{:?}", host.kind);
        // Whatever holds it, it ends with its agent.
        host.agent.child.kill().expect("ours");
        host.agent.child.wait().expect("ours");
        wait_until("the neighbour's end", || marked(&marker).is_empty());
    });
}

/// A number of seconds to sleep that names who sleeps.
fn marker(name: &str) -> String {
    let digits: String = name.bytes().map(|byte| (byte % 10).to_string()).collect();
    format!("1000.{digits}{}", std::process::id())
}

fn find(folder: &Path, name: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(find(&entry.path(), name));
        } else if entry.file_name() == name {
            found.push(entry.path());
        }
    }
    found
}

fn leaves_too_much_is_ended() {
    let tight = |_: &Folders, config: &mut Config| {
        config.commands.disk_mib = 8;
        config.commands.files = 300;
    };
    on_each(tight, async |host| {
        let deep = "d=d; while [ ${#d} -lt 300 ]; do d=$d/d; done; mkdir -p $d";
        let heaps = "i=0; while :; do : > f$i; i=$((i+1)); done";
        let elsewhere = "cd $TMPDIR; ".to_owned() + heaps;
        for (text, says) in [
            // Those that would go on for ever, and those that are done before anybody looks.
            (heaps, "it made more than 300 files"),
            (&*elsewhere, "it made more than 300 files"),
            ("i=0; while [ $i -lt 400 ]; do : > f$i; i=$((i+1)); done", "more than 300 files"),
            ("while :; do head -c 1000000 /dev/zero >> f; done", "hold more than 8388608 bytes"),
            ("head -c 9000000 /dev/zero > f; exit 3", "hold more than 8388608 bytes"),
            // Whose runner always has something to read.
            (
                "head -c 9000000 /dev/zero > f; timeout 30 cat /dev/zero >&2",
                "hold more than 8388608 bytes, and was ended",
            ),
            (deep, "nested more than 128 deep"),
        ] {
            let report = host.session.perform(script(text), None).await;
            assert!(failure(&report).contains(says), "{:?}, {text}: {report:?}", host.kind);
        }
        let fine = "i=0; while [ $i -lt 250 ]; do : > f$i; i=$((i+1)); done; head -c 7000000 /dev/zero > g";
        output(&host.session.perform(script(fine), None).await);
        let tasks = host.folders.path("work/tasks");
        assert_eq!(find(&tasks, "g").len() + find(&tasks, "f1").len(), 0, "nothing is left");
    });
}

fn what_forks_away_ends_with_it() {
    on_each(as_they_come, async |host| {
        let marker = marker("runaway");
        for text in [
            format!(
                "(setsid sh -c 'trap \"\" HUP TERM; sleep {marker}; :' >/dev/null 2>&1 &) ; sleep 0.05"
            ),
            format!("(setsid setsid sleep {marker} & sleep {marker} &) & sleep 0.05"),
            format!("sleep {marker} & sleep {marker} & sleep 0.05; kill -9 $$"),
        ] {
            let report = host.session.perform(script(&text), None).await;
            assert_eq!(marked(&marker), [0; 0], "{:?}: {report:?}", host.kind);
        }
    });
}

/// A number that nobody is listed under: the group of the same number may be somebody's.
fn has_a_group_that_is_nobodys() {
    if !is_root() {
        return;
    }
    block_on(async {
        let kind = Kind { user: None, handicap: Handicap::None };
        let user = ORDINARY.to_string();
        let mut host =
            Host::start(kind, |_, config| config.commands.user = Some(user.clone())).await;
        if !host.runs_commands() {
            return;
        }
        let report =
            host.session.perform(script("id -u; id -G; touch mine; stat -c %g mine"), None).await;
        let said = text(&report, "stdout");
        let numbers: Vec<u32> = said.split_whitespace().flat_map(str::parse).collect();
        let [uid, group, of_file] = numbers[..] else { panic!("{said}") };
        assert_eq!(uid, ORDINARY);
        assert!(group != ORDINARY && group != 0 && group == of_file, "{said}");
    });
}

fn refused_where_nothing_confines() {
    let mut kinds = Vec::new();
    if is_root() {
        // What is left would have it run as root.
        kinds.push((
            Kind { user: None, handicap: Handicap::NoNamespaces },
            "a command runs as root",
        ));
    }
    let ordinary = is_root().then_some(ORDINARY);
    let bare = Kind { user: ordinary, handicap: Handicap::NoLayers };
    kinds.push((bare, "a command reads and writes every file that the agent may"));
    for (kind, says) in kinds {
        block_on(async {
            let mut host = Host::start(kind, as_they_come).await;
            let said = host.says();
            assert!(said.starts_with(&format!("refused: {says}")), "{kind:?}: {said}");
            assert!(said.contains("gleaner doctor"), "{said}");
            assert!(host.hello.host.capabilities.commands.is_empty());
            // Whoever sends one all the same gets it back.
            let task = script("touch ran");
            host.session.give(task, &[None]).await;
            let reason = hear_cannot_run(&mut host.session).await;
            assert!(reason.contains("/bin/sh is not allowed on this host"), "{reason}");
        });
    }
}

async fn hear_cannot_run(session: &mut Session) -> String {
    let pick = |message: &AgentMessage| match message {
        AgentMessage::Released(released) => match &released.reason {
            ReleaseReason::CannotRun(reason) => Some(reason.clone()),
            other => panic!("{other:?}"),
        },
        AgentMessage::Report(report) => panic!("{report:?}"),
        _ => None,
    };
    session.hear_of(pick).await
}

fn an_owner_may_have_them_run() {
    let ordinary = is_root().then_some(ORDINARY);
    for (handicap, confine, says) in [
        (Handicap::NoLayers, Confine::Available, "confined by seccomp; a command reads"),
        (Handicap::None, Confine::Off, "not confined, by the owner's word"),
    ] {
        let kind = Kind { user: ordinary, handicap };
        block_on(async {
            let mut host = Host::start(kind, |_, config| {
                config.commands = CommandRules { confine, ..CommandRules::default() };
            })
            .await;
            assert!(host.says().starts_with(says), "{}", host.says());
            let key = host.path("key");
            let answers = host.probe(&[("read", &key), ("call", "ptrace")]).await;
            assert_eq!(answers[0], "ok", "as said: {kind:?}");
            assert_eq!(answers[1] == "ok", confine == Confine::Off, "{kind:?}");
            let report: Report = host.session.perform(script("exit 3"), None).await;
            assert_eq!(failure(&report), "it ended with exit code 3");
        });
    }
}
