//! Managers that call nothing: the agent watches their worker.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::thread;

use gleaner_hooks::install::{Finding, Level, Manager, Options, check, install, uninstall};
use gleaner_hooks::{SocketAnswer, Standing, encode_line};

use crate::tree::Tree;
use crate::tree_of;

const FILE: &str = "etc/systemd/system/gleaner-agent.service.d/gleaner-flamenco.conf";
const SYSTEMCTL: &str = "#!/bin/sh\necho \"$*\" >> \"${0%/*}/../told\"\n";
const RESTART: &str = "daemon-reload\ntry-restart gleaner-agent.service\n";

fn put(tree: &Tree, options: &Options) {
    let plan = install(Manager::Flamenco, &tree.site(), options).expect("it fits");
    plan.apply(&tree.site()).expect("done");
}

fn found(tree: &Tree, level: Level) -> String {
    let found = check(Manager::Flamenco, &tree.site(), &tree.options()).expect("it is there");
    let found = found.into_iter().filter(|one| one.level == level);
    found.map(|Finding { what, to_do, .. }| format!("{what} -> {to_do}\n")).collect()
}

/// An agent that says as often that it watches these.
fn with_agent(tree: &Tree, workers: &[&str], times: usize, act: impl FnOnce()) {
    tree.put("run/gleaner/stop", "");
    let socket = UnixListener::bind(tree.path("run/gleaner/agent.sock")).expect("bound");
    let workers = workers.iter().map(|name| (*name).to_owned()).collect();
    let standing = Standing { workers, ..Standing::default() };
    let line = encode_line(&SocketAnswer::Standing(Box::new(standing))).expect("short");
    let agent = thread::spawn(move || {
        for asker in socket.incoming().take(times) {
            let mut asker = asker.expect("it asks");
            let mut asked = String::new();
            BufReader::new(&asker).read_line(&mut asked).expect("a line");
            asker.write_all(&line).expect("it listens");
        }
    });
    act();
    agent.join().expect("asked as often");
    tree.remove("run/gleaner/agent.sock");
}

#[test]
fn an_agent_is_given_the_worker_and_the_right_and_is_restarted() {
    let tree = tree_of(Manager::Flamenco).with_program("systemctl", SYSTEMCTL);
    let before = tree.look();
    put(&tree, &tree.options());
    let text = tree.read(FILE);
    for line in [
        "[Service]",
        "Environment=GLEANER_AGENT_WATCH_FLAMENCO=flamenco-worker",
        "AmbientCapabilities=CAP_NET_ADMIN CAP_SYS_PTRACE",
        "CapabilityBoundingSet=CAP_NET_ADMIN CAP_SYS_PTRACE",
        "RestrictAddressFamilies=AF_NETLINK",
    ] {
        assert!(text.lines().any(|is| is == line), "no {line:?} in {text}");
    }
    assert!(!tree.has("etc/gleaner/hook.env"), "no hook would read it");
    assert_eq!(tree.read("told"), RESTART);
    let again = install(Manager::Flamenco, &tree.site(), &tree.options()).expect("it fits");
    assert!(again.is_done(), "{:#?}", again.changes);

    // What systemd was not told of is told when it is seen.
    with_agent(&tree, &["rqd"], 1, || put(&tree, &tree.options()));
    assert_eq!(tree.read("told"), RESTART.repeat(2));
    with_agent(&tree, &["rqd", "flamenco-worker"], 1, || put(&tree, &tree.options()));
    assert_eq!(tree.read("told"), RESTART.repeat(2));

    let others = Options { workers: vec!["worker-a".into(), "b".into()], ..tree.options() };
    put(&tree, &others);
    assert!(tree.read(FILE).contains("_FLAMENCO=worker-a,b\n"), "{}", tree.read(FILE));
    put(&tree, &tree.options());
    assert!(tree.read(FILE).contains("_FLAMENCO=worker-a,b\n"), "what is not said stays");
    let findings = check(Manager::Flamenco, &tree.site(), &tree.options()).expect("it is there");
    assert!(findings.iter().all(|one| one.level != Level::Wrong), "{findings:#?}");
    let usual = Options { workers: vec!["flamenco-worker".into()], ..tree.options() };
    put(&tree, &usual);
    assert!(tree.read(FILE).contains("=flamenco-worker\n"), "{}", tree.read(FILE));
    let gone = uninstall(Manager::Flamenco, &tree.site(), false).expect("it is there");
    assert_eq!(gone.left, [""; 0]);
    assert!(tree.read("told").ends_with(RESTART));
    tree.remove("told");
    tree.remove_all("run");
    assert_eq!(tree.look(), before, "nothing is left");
}

#[test]
fn both_are_watched_side_by_side_and_what_a_site_adds_to_the_unit_stays() {
    let tree = tree_of(Manager::Flamenco);
    tree.put("etc/systemd/system/gleaner-agent.service.d/group.conf", "[Service]\nGroup=render\n");
    let before = tree.look();
    for manager in [Manager::Flamenco, Manager::RoyalRender, Manager::Generic] {
        let plan = install(manager, &tree.site(), &tree.options()).expect("it fits");
        plan.apply(&tree.site()).expect("done");
    }
    let other = FILE.replace("flamenco", "royal-render");
    assert!(
        tree.read(&other).contains("\nEnvironment=GLEANER_AGENT_WATCH_ROYAL_RENDER=rrClient\n")
    );
    uninstall(Manager::Flamenco, &tree.site(), false).expect("it is there");
    assert!(tree.has(&other) && !tree.has(FILE));
    uninstall(Manager::Generic, &tree.site(), false).expect("it is there");
    assert!(!tree.has("etc/gleaner/hook.env"), "no other hooks have read it");
    uninstall(Manager::RoyalRender, &tree.site(), false).expect("it is there");
    assert_eq!(tree.look(), before);
}

#[test]
fn a_check_says_whether_the_agent_watches_and_a_worker_is_there() {
    let tree = tree_of(Manager::Flamenco);
    put(&tree, &tree.options());
    assert!(found(&tree, Level::Good).contains("has the agent watch flamenco-worker"));
    let notes = found(&tree, Level::Note);
    for word in ["no agent answers", "no process is called flamenco-worker", "poll = \"flamenco\""]
    {
        assert!(notes.contains(word), "no {word:?} in {notes}");
    }
    assert!(found(&tree, Level::Trap).contains("some milliseconds after its start"));
    assert_eq!(found(&tree, Level::Wrong), "");

    tree.put("proc/77/comm", "flamenco-worker\n");
    assert!(found(&tree, Level::Good).contains("process 77"));
    // What Python runs is known by its command line, as it is to the agent.
    tree.put("proc/77/comm", "python3\n");
    assert!(!found(&tree, Level::Good).contains("process 77"));
    tree.put("proc/77/cmdline", "python3\0-m\0flamenco-worker\0");
    assert!(found(&tree, Level::Good).contains("process 77"));
    tree.put("proc/77/comm", "flamenco-worker\n");
    with_agent(&tree, &["flamenco-worker"], 2, || {
        assert!(found(&tree, Level::Good).contains("answers in /run/gleaner watches them"));
        assert_eq!(found(&tree, Level::Wrong), "");
    });
    with_agent(&tree, &["rqd"], 1, || {
        let wrong = found(&tree, Level::Wrong);
        assert!(wrong.contains("does not watch flamenco-worker"), "{wrong}");
        assert!(wrong.contains("systemctl daemon-reload && systemctl try-restart"), "{wrong}");
    });
    tree.put(FILE, "[Service]\n");
    let wrong = found(&tree, Level::Wrong);
    assert!(wrong.contains("does not have the agent watch flamenco-worker"), "{wrong}");
}

#[test]
fn what_cannot_be_watched_is_refused_with_what_to_do() {
    let refused = |tree: &Tree, options: &Options| {
        install(Manager::RoyalRender, &tree.site(), options).expect_err("it cannot be").to_string()
    };
    let tree = tree_of(Manager::RoyalRender);
    for bad in ["", "rrClient of mine", "rrClientconsole2", "a,b", "a\nb", "%i"] {
        let options = Options { workers: vec![bad.into()], ..tree.options() };
        let said = refused(&tree, &options);
        assert!(said.contains("ps -e -o comm"), "{bad:?}: {said}");
    }
    let none = Tree::new();
    let said = refused(&none, &none.options());
    assert!(said.contains("as root with --watch-worker rrClient"), "{said}");
}

#[test]
fn an_uninstallation_that_was_cut_short_restarts_the_agent_the_next_time() {
    let tree = tree_of(Manager::Flamenco).with_program("systemctl", SYSTEMCTL);
    put(&tree, &tree.options());
    // It died between its first step and the second.
    tree.remove(FILE);
    tree.remove("told");
    let gone = uninstall(Manager::Flamenco, &tree.site(), false).expect("it is there");
    assert_eq!(gone.left, [""; 0]);
    assert_eq!(tree.read("told"), RESTART);
    assert!(!tree.has("etc/gleaner"));
}

#[test]
fn opencues_worker_is_watched_beside_its_wrapper_where_it_is_named() {
    const FILE: &str = "etc/systemd/system/gleaner-agent.service.d/gleaner-opencue.conf";
    let tree = tree_of(Manager::OpenCue)
        .with("etc/systemd/system/site.service", "[Service]\n")
        .with_program("systemctl", SYSTEMCTL);
    let before = tree.look();
    let put = |options: &Options| {
        let plan = install(Manager::OpenCue, &tree.site(), options).expect("it fits");
        plan.apply(&tree.site()).expect("done");
    };
    let found = |level: Level| {
        let found = check(Manager::OpenCue, &tree.site(), &tree.options()).expect("it is there");
        let found = found.into_iter().filter(|one| one.level == level);
        found.map(|one| format!("{}\n", one.what)).collect::<String>()
    };
    put(&tree.options());
    assert!(!tree.has(FILE) && !tree.has("told"), "nobody has asked for it");
    assert!(!found(Level::Note).contains("no process is called"), "nor is one looked for");
    put(&Options { workers: vec!["rqd".into()], ..tree.options() });
    assert!(tree.read(FILE).contains("\nEnvironment=GLEANER_AGENT_WATCH_OPENCUE=rqd\n"));
    assert_eq!(tree.read("told"), RESTART);
    put(&tree.options());
    assert_eq!(tree.read("told"), RESTART, "it is there already, and what is not said stays");
    assert!(found(Level::Good).contains("gleaner-opencue.conf has the agent watch rqd"));
    assert!(found(Level::Note).contains("no process is called rqd"));
    tree.put(FILE, "[Service]\n");
    assert!(found(Level::Wrong).contains("does not have the agent watch rqd"));
    tree.remove(FILE);
    put(&tree.options());
    let gone = uninstall(Manager::OpenCue, &tree.site(), false).expect("it is there");
    assert_eq!(gone.left, [""; 0]);
    assert_eq!(tree.read("told"), RESTART.repeat(3), "and of its end");
    tree.remove("told");
    assert_eq!(tree.look(), before, "nothing is left");

    let none = tree_of(Manager::OpenCue);
    let options = Options { workers: vec!["rqd".into()], ..none.options() };
    let said = install(Manager::OpenCue, &none.site(), &options).expect_err("no systemd");
    assert!(said.to_string().contains("install without --worker then"), "{said}");
}

#[test]
fn what_may_name_opencues_wrapper_still_is_said_when_it_goes() {
    let tree = tree_of(Manager::OpenCue);
    let plan = install(Manager::OpenCue, &tree.site(), &tree.options()).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    for is_dry in [true, false] {
        let gone = uninstall(Manager::OpenCue, &tree.site(), is_dry).expect("it is there");
        let said = gone.notes.join("\n");
        for word in ["end with 127", "gleaner-frame …`", "&& exec", "Flamenco"] {
            assert!(said.contains(word), "no {word:?} in {said}");
        }
        // An RQD that is left to read a file of ours ends its watch of the machine without it.
        for word in ["proc_loadavg_path", "/proc/loadavg", "before you remove Gleaner"] {
            assert!(said.contains(word), "no {word:?} in {said}");
        }
    }
}
