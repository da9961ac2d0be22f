//! Installation, check and removal for every farm manager, on trees made for it, with stand-ins
//! for the managers' programs.

mod again;
mod findings;
mod gone;
mod grid_engine;
mod interrupted;
mod nodes;
mod several;
mod tree;
mod watched;

use std::path::Path;

use gleaner_hooks::install::{
    Change, Finding, InstallError, Level, Manager, Options, check, install, uninstall,
};
use tree::Tree;

/// Where `Tree` makes each manager's own folder or file, and what an administrator says of it.
fn tree_of(manager: Manager) -> Tree {
    let tree = Tree::new();
    match manager {
        Manager::Generic => tree,
        Manager::Slurm => tree.with("etc/slurm/slurm.conf", SLURM_CONF),
        Manager::GridEngine => tree
            .with_program("qconf", QCONF)
            .with_program("qstat", "#!/bin/sh\n")
            .with("queue", QUEUE),
        Manager::HtCondor => tree
            .with("etc/condor/condor_config", "ALLOW_WRITE = *\n")
            .with("etc/condor/config.d/00-site", "DAEMON_LIST = MASTER, STARTD\n"),
        Manager::Qube => tree
            .with("usr/local/pfx/qube/flightCheck/instance/pre/site.txt", "notes")
            .with("usr/local/pfx/qube/flightCheck/instance/post/site.txt", "notes"),
        Manager::Torque => tree.with("var/spool/torque/mom_priv/config", "$logevent 255\n"),
        Manager::OpenPbs => tree.with_program("qmgr", QMGR),
        Manager::Deadline => tree.with("repo/custom/events/readme", "").folder("/repo"),
        Manager::Flamenco | Manager::RoyalRender => tree
            .with("etc/systemd/system/site.service", "[Service]\n")
            .with_program("systemctl", "#!/bin/sh\n"),
        Manager::Tractor => tree.with("site/other.py", "").folder("/site"),
        Manager::Afanasy => {
            tree.with("opt/cgru/afanasy/python/services/__init__.py", "# services\n")
        }
        Manager::OpenCue => tree.with("wrappers/opencue_wrap_frame", WRAPPER).folder("/wrappers"),
    }
}

const SLURM_CONF: &str = "ClusterName=farm\nSlurmctldHost=head\n\nNodeName=n1 CPUs=4\n\
                          PartitionName=farm Nodes=ALL Default=YES";

const WRAPPER: &str = "#!/bin/tcsh -f\nset noglob\n\necho About to run \"$argv\"\neval $argv\n\
                       set result = $status\nexit $result\n";

/// Answers as `qconf` does, of one queue in a file.
const QCONF: &str = r#"#!/bin/sh
root=${0%/*}/..
echo "$*" >> "$root/told"
case "$1" in
-sel) cat "$root/hosts" 2>/dev/null || echo node1 ;;
-sql) echo all.q ;;
-sq) cat "$root/queue" ;;
-ssconf) cat "$root/scheduler" 2>/dev/null || echo "load_formula                      np_load_avg" ;;
-sconf) cat "$root/conf-$2" 2>/dev/null || printf 'prolog none\nepilog none\n' ;;
-sconfl) cat "$root/configured" 2>/dev/null || { echo "no config defined" >&2; exit 1; } ;;
-mattr) sed -i "s|^$3 .*|$3 $4|" "$root/queue" ;;
*) exit 1 ;;
esac
"#;

const QUEUE: &str = "qname                 all.q\n\
                     load_thresholds       np_load_avg=1.75\n\
                     prolog NONE\n\
                     epilog NONE\n";

/// Answers as `qmgr` does, of hooks in a folder.
const QMGR: &str = r#"#!/bin/sh
root=${0%/*}/..
echo "$2" >> "$root/told"
set -- $2
hook=$root/hook-$3
case "$1 $2" in
"list hook")
    if [ -e "$root/unauthorized" ]; then
        echo "somebody@head is unauthorized to access hooks data from server head" >&2
        [ -z "$3" ]; exit
    fi
    if ! [ -e "$root/hook-gleaner" ]; then
        [ -z "$3" ] || echo "qmgr obj=$3 svr=default: hook not found" >&2
        [ -z "$3" ]; exit
    fi
    echo "Hook gleaner"
    echo "    type = site"
    echo "    enabled = $(cat "$root/hook-gleaner.enabled")"
    echo "    event = \"$(cat "$root/hook-gleaner.event")\""
    echo "    alarm = 30" ;;
"create hook") : > "$hook" && : > "$hook.event" && echo true > "$hook.enabled" ;;
"delete hook") rm "$hook" "$hook.event" "$hook.enabled" ;;
"set hook") [ -e "$hook" ] && echo "$6" | tr -d '"' > "$hook.$4" ;;
"import hook") [ -e "$hook" ] && cat "$root/$6" > "$hook" ;;
"export hook") [ -s "$hook" ] && cat "$hook" ;;
*) exit 1 ;;
esac
"#;

#[test]
fn what_is_installed_is_right_and_is_taken_away_without_a_trace() {
    for manager in Manager::ALL {
        let tree = tree_of(manager);
        let before = tree.look();

        let plan = install(manager, &tree.site(), &tree.options()).expect("it fits");
        assert!(!plan.is_done(), "{manager}");
        assert_eq!(tree.look(), before, "{manager}: a plan writes nothing");
        let (done, undone) = plan.apply(&tree.site()).expect("it is done");
        assert!(!done.is_empty(), "{manager}");
        assert_eq!(undone, [""; 0], "{manager}");

        let findings = check(manager, &tree.site(), &tree.options()).expect("it is there");
        let wrong: Vec<_> = findings.iter().filter(|one| one.level == Level::Wrong).collect();
        assert!(wrong.is_empty(), "{manager}: {wrong:#?}");
        assert!(findings.iter().any(|one| one.level == Level::Good), "{manager}");

        let after = tree.look();
        let again = install(manager, &tree.site(), &tree.options()).expect("it fits");
        assert!(again.is_done(), "{manager}: {:#?}", again.changes);
        assert_eq!(tree.look(), after, "{manager}: twice is once");

        let dry = uninstall(manager, &tree.site(), true).expect("it is there");
        assert!(!dry.done.is_empty(), "{manager}");
        assert_eq!(tree.look(), after, "{manager}: a dry run changes nothing");
        let gone = uninstall(manager, &tree.site(), false).expect("it is there");
        assert_eq!(gone.left, [""; 0], "{manager}");
        assert!(!gone.is_unfinished, "{manager}");
        assert_eq!(gone, dry, "{manager}: what was promised is what was done");
        assert_eq!(tree.look(), before, "{manager}: nothing is left");

        let error = uninstall(manager, &tree.site(), false).expect_err("nothing is there");
        assert!(matches!(error, InstallError::NotInstalled { .. }), "{error}");
        assert!(check(manager, &tree.site(), &tree.options()).is_err());
    }
}

#[test]
fn whatever_step_fails_nothing_names_what_is_not_there_and_all_can_be_taken_away() {
    for manager in Manager::ALL {
        let whole = tree_of(manager);
        let steps =
            install(manager, &whole.site(), &whole.options()).expect("it fits").changes.len();
        for done in 0..=steps {
            let tree = tree_of(manager);
            let before = tree.look();
            let mut plan = install(manager, &tree.site(), &tree.options()).expect("it fits");
            plan.changes.truncate(done);
            let told = plan
                .changes
                .iter()
                .any(|change| matches!(change, Change::Edit { .. } | Change::Tell { .. }));
            plan.apply(&tree.site()).expect("these steps can be done");
            if told {
                for path in tree.named() {
                    assert!(tree.is_executable(&path), "{manager}, {done} steps: {path}");
                }
            }
            match uninstall(manager, &tree.site(), false) {
                Ok(_) => {}
                Err(InstallError::NotInstalled { .. }) if done == 0 => {}
                Err(error) => panic!("{manager}, {done} steps: {error}"),
            }
            assert_eq!(tree.look(), before, "{manager}, {done} steps");
        }
    }
}

#[test]
fn a_script_that_cannot_be_run_is_never_configured() {
    let tree = tree_of(Manager::Slurm);
    let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
    let mut crippled = plan.clone();
    for change in &mut crippled.changes {
        if let Change::Put { path, mode, .. } = change
            && path.ends_with("prolog")
        {
            *mode = 0o644;
        }
    }
    let conf = tree.read("etc/slurm/slurm.conf");
    let error = crippled.apply(&tree.site()).expect_err("it would drain the node");
    assert!(error.to_string().contains("prolog cannot be run"), "{error}");
    assert_eq!(tree.read("etc/slurm/slurm.conf"), conf);
}

#[test]
fn a_file_that_somebody_changes_meanwhile_is_not_written_over() {
    let tree = tree_of(Manager::Slurm);
    let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
    tree.put("etc/slurm/slurm.conf", "ClusterName=other\n");
    let error = plan.apply(&tree.site()).expect_err("it is another file now");
    assert!(error.to_string().contains("changed by somebody else"), "{error}");
    assert_eq!(tree.read("etc/slurm/slurm.conf"), "ClusterName=other\n");
}

#[test]
fn what_an_administrator_has_changed_since_stays() {
    let tree = tree_of(Manager::Slurm);
    let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    tree.put("etc/gleaner/hooks/slurm/epilog", "#!/bin/sh\n# mine\n");
    let conf = tree.read("etc/slurm/slurm.conf");
    tree.put("etc/slurm/slurm.conf", &format!("# a word of mine\n{conf}"));
    let findings = check(Manager::Slurm, &tree.site(), &tree.options()).expect("it is there");
    assert!(findings.iter().any(|one| one.what.contains("epilog is not as it was installed")));
    let gone = uninstall(Manager::Slurm, &tree.site(), false).expect("it is there");
    assert_eq!(gone.left.len(), 2, "{:?}", gone.left);
    assert_eq!(tree.read("etc/slurm/slurm.conf"), format!("# a word of mine\n{SLURM_CONF}"));
    assert_eq!(tree.read("etc/gleaner/hooks/slurm/epilog"), "#!/bin/sh\n# mine\n");
}

#[test]
fn settings_that_are_there_are_an_administrators_and_stay() {
    let mine = "GLEANER=/opt/gleaner\nGLEANER_RUN_DIR=/run/mine\n";
    let tree = tree_of(Manager::Generic).with("etc/gleaner/hook.env", mine);
    let plan = install(Manager::Generic, &tree.site(), &tree.options()).expect("it fits");
    assert!(plan.notes.iter().any(|note| note.contains("/opt/gleaner")), "{:?}", plan.notes);
    plan.apply(&tree.site()).expect("done");
    let findings = check(Manager::Generic, &tree.site(), &tree.options()).expect("it is there");
    let what = "names /opt/gleaner, which cannot be run";
    assert!(findings.iter().any(|one| one.level == Level::Wrong && one.what.contains(what)));
    uninstall(Manager::Generic, &tree.site(), false).expect("it is there");
    assert_eq!(tree.read("etc/gleaner/hook.env"), mine);
}

#[test]
fn settings_of_ours_that_nobody_has_changed_get_what_is_said_now() {
    let with = |settings: &[(&str, &str)]| {
        let settings = settings.iter().map(|(name, value)| (String::from(*name), (*value).into()));
        Options { settings: settings.collect(), ..Tree::new().options() }
    };
    let tree = tree_of(Manager::Slurm);
    let before = tree.look();
    let put = |options: &Options| {
        let plan = install(Manager::Slurm, &tree.site(), options).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        assert!(install(Manager::Slurm, &tree.site(), options).expect("it fits").is_done());
        tree.read("etc/gleaner/hook.env")
    };
    put(&with(&[("GLEANER_MONITOR", "http://head:1"), ("GLEANER_HOST", "n1")]));
    let now = put(&with(&[("GLEANER_MONITOR", "http://head:2")]));
    assert!(now.contains("\nGLEANER_MONITOR=http://head:2\n"), "{now}");
    assert!(now.contains("\nGLEANER_HOST=n1\n") && !now.contains("head:1"), "{now}");
    assert_eq!(put(&with(&[])), now, "what is not said stays");
    let elsewhere = Options { run_dir: "/run/other".into(), ..with(&[]) };
    assert!(put(&elsewhere).contains("\nGLEANER_RUN_DIR=/run/other\n"));

    // From here on somebody else has a say.
    let mine = format!("{}# mine\n", tree.read("etc/gleaner/hook.env"));
    tree.put("etc/gleaner/hook.env", &mine);
    let plan = install(Manager::Slurm, &tree.site(), &with(&[("GLEANER_HOST", "n2")]));
    let undone = plan.expect("it fits").undone;
    assert!(undone.iter().any(|one| one.contains("GLEANER_HOST=n2 is not in /etc")), "{undone:?}");
    tree.put("etc/gleaner/hook.env", mine.trim_end_matches("# mine\n"));
    let plan = install(Manager::Generic, &tree.site(), &elsewhere).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    let plan = install(Manager::Slurm, &tree.site(), &with(&[("GLEANER_HOST", "n2")]));
    assert!(!plan.expect("it fits").notes.is_empty(), "another manager's hooks have them too");

    for manager in [Manager::Generic, Manager::Slurm] {
        let gone = uninstall(manager, &tree.site(), false).expect("it is there");
        assert_eq!(gone.left, [""; 0], "{manager}");
    }
    assert_eq!(tree.look(), before);
}

#[test]
fn a_dry_run_passes_over_folders_in_which_something_else_is() {
    let tree = tree_of(Manager::Slurm);
    let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    tree.put("etc/gleaner/token", "");
    let dry = uninstall(Manager::Slurm, &tree.site(), true).expect("it is there");
    assert!(dry.done.contains(&"remove the folder /etc/gleaner/hooks".to_owned()), "{dry:?}");
    assert!(!dry.done.contains(&"remove the folder /etc/gleaner".to_owned()), "{dry:?}");
    assert_eq!(uninstall(Manager::Slurm, &tree.site(), false).expect("it is there"), dry);
}

#[test]
fn two_managers_share_the_settings_until_the_last_is_gone() {
    let tree = tree_of(Manager::Slurm);
    for manager in [Manager::Slurm, Manager::Generic] {
        let plan = install(manager, &tree.site(), &tree.options()).expect("it fits");
        plan.apply(&tree.site()).expect("done");
    }
    uninstall(Manager::Slurm, &tree.site(), false).expect("it is there");
    assert!(tree.has("etc/gleaner/hook.env"), "the other needs it");
    uninstall(Manager::Generic, &tree.site(), false).expect("it is there");
    assert!(!tree.has("etc/gleaner"), "nothing is left");
}

/// Its owner may name any program; the one that is a hook alone is taken only where it can be run.
#[test]
fn the_program_for_hooks_is_the_one_that_is_nothing_else_where_it_is_there() {
    let tree = Tree::new();
    let program = |whole: &str| tree.site().hook_program(Path::new(whole));
    let (whole, alone) = ("/usr/local/bin/gleaner", "/usr/local/bin/gleaner-hook");
    assert_eq!(program(whole), Path::new(whole));
    tree.put(alone, "#!/bin/sh\n");
    assert_eq!(program(whole), Path::new(whole), "it cannot be run");
    tree.chmod(alone, 0o755);
    assert_eq!(program(whole), Path::new(alone));
    for other in ["/usr/local/bin/mine", alone] {
        assert_eq!(program(other), Path::new(other));
    }
}

#[test]
fn a_hook_alone_needs_the_whole_program_for_a_monitor_behind_tls() {
    let tree = tree_of(Manager::Generic);
    let alone = "/usr/local/bin/gleaner-hook";
    tree.put(alone, "#!/bin/sh\n");
    tree.chmod(alone, 0o755);
    let monitor = |url: &str| {
        let settings = [("GLEANER_MONITOR".to_owned(), url.to_owned())].into();
        Options { program: alone.into(), settings, ..tree.options() }
    };
    let wrong = |options: &Options| {
        let plan = install(Manager::Generic, &tree.site(), options).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        let findings = check(Manager::Generic, &tree.site(), options).expect("it is there");
        let wrong = findings.into_iter().filter(|one| one.level == Level::Wrong);
        wrong.map(|one| one.what).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(wrong(&monitor("https://head:1")), "");
    tree.remove("usr/local/bin/gleaner");
    assert_eq!(wrong(&monitor("http://head:1")), "");
    let said = wrong(&monitor("https://head:1"));
    assert!(said.contains("there is no /usr/local/bin/gleaner: the monitor is not told"), "{said}");
}

#[test]
fn bad_input_is_answered_with_what_where_and_what_to_do() {
    let message = |manager, tree: &Tree| {
        let error = install(manager, &tree.site(), &tree.options()).expect_err("it cannot be");
        error.to_string()
    };
    let no_program = Tree::new().without_program();
    assert!(message(Manager::Generic, &no_program).contains("copy gleaner to a local disk"));
    for (manager, word) in [
        (Manager::HtCondor, "condor_config_val LOCAL_CONFIG_DIR"),
        (Manager::Slurm, "there is no /etc/slurm/slurm.conf; say --conf"),
        (Manager::Qube, "say --folder where the worker's flightCheck folder is"),
        (Manager::Torque, "say --folder where the MoM's mom_priv folder is"),
        (Manager::Afanasy, "say --folder"),
    ] {
        let said = message(manager, &Tree::new());
        assert!(said.contains(word), "{manager}: {said}");
    }
    for (manager, word) in [
        (Manager::Deadline, "/nowhere/custom/events"),
        (Manager::Tractor, "there is no folder /nowhere"),
        (Manager::OpenCue, "/nowhere has none of opencue_wrap_frame"),
    ] {
        let said = message(manager, &Tree::new().folder("/nowhere"));
        assert!(said.contains(word), "{manager}: {said}");
    }
    let tree = Tree::new().with("wrappers/opencue_wrap_frame", "#!/bin/sh\nexec \"$@\"\n");
    let said = message(Manager::OpenCue, &tree.folder("/wrappers"));
    assert!(said.contains("no line `eval $argv`"), "{said}");

    let damaged = tree_of(Manager::Generic).with("etc/gleaner/hooks/generic/installed.json", "{");
    let error =
        check(Manager::Generic, &damaged.site(), &damaged.options()).expect_err("no record");
    assert!(error.to_string().contains("installed.json is no record"), "{error}");
    let link = tree_of(Manager::Slurm).with_link("etc/slurm/slurm.conf", "/etc/hostname");
    let link = link.nodes_are_ready();
    let plan = install(Manager::Slurm, &link.site(), &link.options());
    let refused = plan.and_then(|plan| plan.apply(&link.site()));
    let said = refused.expect_err("it leads out of the tree").to_string();
    assert!(said.contains("slurm.conf"), "{said}");

    let file = Tree::new().with("etc/gleaner", "a file in its way");
    let plan = install(Manager::Generic, &file.site(), &file.options());
    let said = plan.and_then(|plan| plan.apply(&file.site())).expect_err("no folder").to_string();
    assert!(said.contains("cannot write /etc/gleaner/hooks/generic/installed.json"), "{said}");

    for (name, word) in [
        ("flamenko", "afanasy, deadline, flamenco, generic, grid-engine"),
        ("royal render", "qube, royal-render, slurm"),
        ("slurn", "afanasy, deadline, flamenco, generic, grid-engine"),
        ("", "generic"),
    ] {
        let error = name.parse::<Manager>().expect_err("no such manager").to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn a_sites_own_hooks_are_never_touched() {
    for (manager, tree, words) in [
        (
            Manager::Slurm,
            Tree::new().with("etc/slurm/slurm.conf", "NodeName=n1\nprolog=/site/p.sh # ours\n"),
            &[
                "/etc/slurm/slurm.conf:2 has prolog=/site/p.sh",
                "prolog.d/*",
                "add `prolog=/etc/gleaner/hooks/slurm/prolog` on a line below yours",
            ][..],
        ),
        (
            Manager::Slurm,
            Tree::new()
                .with("etc/slurm/slurm.conf", "NodeName=n1\ninclude more.conf\n")
                .with("etc/slurm/more.conf", "\nEpilog=/site/e.sh\n"),
            &["/etc/slurm/more.conf:2 has Epilog=/site/e.sh"],
        ),
        (
            Manager::GridEngine,
            Tree::new()
                .with_program("qconf", QCONF)
                .with("queue", "qname all.q\nprolog root@/site/p $host\nepilog NONE\n"),
            &["queue all.q has prolog root@/site/p $host"],
        ),
        (
            Manager::GridEngine,
            tree_of(Manager::GridEngine)
                .with("conf-global", "prolog root@/site/p \\\n    $host\nepilog none\n"),
            &[
                "the configuration of all hosts (`qconf -sconf global`) has prolog root@/site/p $host",
                "run `/etc/gleaner/hooks/grid-engine/prolog $host",
                "--files-only",
            ],
        ),
        (
            Manager::GridEngine,
            tree_of(Manager::GridEngine)
                .with("configured", "node2\nnode7\n")
                .with("conf-node2", "mailer /bin/mail\nepilog None\n")
                .with("conf-node7", "mailer /bin/mail\nepilog /site/e\n"),
            &["the configuration of host node7 (`qconf -sconf node7`) has epilog /site/e already"],
        ),
        (
            Manager::HtCondor,
            Tree::new().with("etc/condor/config.d/10-site", "\nStarter_Job_Hook_Keyword = SITE\n"),
            &["/etc/condor/config.d/10-site:2", "HOOK_PREPARE_JOB"],
        ),
        (
            Manager::Torque,
            Tree::new().with("var/spool/torque/mom_priv/prologue", "#!/bin/sh\nsite\n"),
            &["mom_priv/prologue has a script of 2 lines", "gleaner hook preflight --farm pbs"],
        ),
        (
            Manager::Tractor,
            Tree::new().with("site/TractorSiteStatusFilter.py", "class X: pass\n").folder("/site"),
            &["TractorSiteStatusFilter.py has a status filter", "put Gleaner before"],
        ),
    ] {
        let before = tree.look();
        let error = install(manager, &tree.site(), &tree.options()).expect_err("it is taken");
        assert!(matches!(error, InstallError::Occupied { .. }), "{manager}: {error}");
        for word in words {
            assert!(error.to_string().contains(word), "{manager}: no {word:?} in {error}");
        }
        assert_eq!(tree.look(), before, "{manager}");
    }
}

#[test]
fn a_filter_of_the_sites_that_has_gleaner_in_it_stays() {
    let mine =
        "from gleaner_tractor import Gleaner\nclass TractorSiteStatusFilter(Gleaner): pass\n";
    let tree = Tree::new().with("site/TractorSiteStatusFilter.py", mine).folder("/site");
    let plan = install(Manager::Tractor, &tree.site(), &tree.options()).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    assert_eq!(tree.read("site/TractorSiteStatusFilter.py"), mine);
    assert!(tree.has("site/gleaner_tractor.py"));
    uninstall(Manager::Tractor, &tree.site(), false).expect("it is there");
    assert_eq!(tree.read("site/TractorSiteStatusFilter.py"), mine);
}

#[test]
fn a_shared_configuration_waits_for_the_other_nodes() {
    let conf = "NodeName=n[1-3] CPUs=4\nPartitionName=farm Nodes=ALL\n";
    let tree = Tree::new().with("etc/slurm/slurm.conf", conf);
    let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
    assert!(plan.undone.iter().any(|one| one.contains("--nodes-are-ready")), "{:?}", plan.undone);
    plan.apply(&tree.site()).expect("done");
    assert_eq!(tree.read("etc/slurm/slurm.conf"), conf);
    assert!(tree.has("etc/gleaner/hooks/slurm/prolog"), "this host is ready");
    let tree = tree.nodes_are_ready();
    let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    let now = tree.read("etc/slurm/slurm.conf");
    assert!(now.contains("Prolog=/etc/gleaner/hooks/slurm/prolog\n"), "{now}");
    assert!(now.starts_with("# >>> gleaner"), "before the nodes: {now}");
    uninstall(Manager::Slurm, &tree.site(), false).expect("it is there");
    assert_eq!(tree.read("etc/slurm/slurm.conf"), conf);

    let tree = tree_of(Manager::GridEngine).with("hosts", "node1\nnode2\n");
    let plan = install(Manager::GridEngine, &tree.site(), &tree.options()).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    assert_eq!(tree.read("queue"), QUEUE);
    let tree = tree.nodes_are_ready();
    let plan = install(Manager::GridEngine, &tree.site(), &tree.options()).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    let prolog =
        "root@/etc/gleaner/hooks/grid-engine/prolog $host $job_id $ja_task_id $job_owner $queue";
    assert!(tree.read("queue").contains(prolog), "{}", tree.read("queue"));
}

#[test]
fn htcondor_reads_its_configuration_after_ours_is_gone_from_it() {
    let reads = "#!/bin/sh\ncp \"${0%/*}/../etc/condor/config.d/60-gleaner.conf\" \"${0%/*}/../running\" \
                 2>/dev/null || : > \"${0%/*}/../running\"\n";
    let tree = tree_of(Manager::HtCondor).with_program("condor_reconfig", reads);
    let plan = install(Manager::HtCondor, &tree.site(), &tree.options()).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    assert!(tree.read("running").contains("GLEANER_HOOK_PREPARE_JOB = /etc/gleaner/hooks/"));
    uninstall(Manager::HtCondor, &tree.site(), false).expect("it is there");
    assert_eq!(tree.read("running"), "");
}

/// A `scontrol` that reads the configuration when it is told to, as slurmctld does.
const SCONTROL: &str = r#"#!/bin/sh
root=${0%/*}/..
echo "$*" >> "$root/told"
case "$1" in
show) cat "$root/running" ;;
reconfigure) [ ! -e "$root/down" ] && cp "$root/etc/slurm/slurm.conf" "$root/running" ;;
esac
"#;

#[test]
fn a_manager_that_cannot_be_told_is_one_to_be_told_by_hand() {
    for (manager, installed, looked) in [
        (Manager::Slurm, "run `scontrol reconfigure` yourself", "whether Slurm runs with this"),
        (Manager::HtCondor, "condor_reconfig is not in PATH", "how HTCondor runs was not asked"),
    ] {
        // One on which something runs, and whose programs are elsewhere.
        let tree = tree_of(manager);
        let site = tree.site().with_programs("/nowhere");
        let plan = install(manager, &site, &tree.options()).expect("it fits");
        assert!(plan.undone.iter().any(|one| one.contains(installed)), "{:?}", plan.undone);
        plan.apply(&site).expect("done");
        // Who has configuration management run it each hour is not told each time that it is left to do.
        let again = install(manager, &site, &tree.options()).expect("it fits");
        assert!(again.is_done() && again.undone.is_empty(), "{:?}", again.undone);
        let said = again.notes.join("\n");
        assert!(said.contains("was not asked, for"), "{manager}: {said}");
        let found = check(manager, &site, &tree.options()).expect("it is there");
        let is_said = |one: &Finding| one.level == Level::Note && one.what.contains(looked);
        assert!(found.iter().any(is_said), "{manager}: {found:#?}");
        let gone = uninstall(manager, &site, false).expect("it is there");
        let is_left = |left: &String| left.contains("was not told to read its configuration");
        assert!(gone.is_unfinished && gone.left.iter().any(is_left), "{:?}", gone.left);

        // Where nothing runs there is nobody to tell.
        let image = tree_of(manager);
        let plan = install(manager, &image.site(), &image.options()).expect("it fits");
        assert_eq!(plan.undone, [""; 0], "{manager}");
        let files = Options { files_only: true, ..tree.options() };
        let plan = install(manager, &site, &files).expect("it fits");
        assert_eq!(plan.undone, [""; 0], "{manager}: nothing of it was changed");
    }
}

#[test]
fn files_stay_while_a_running_slurm_may_still_run_them() {
    let tree = tree_of(Manager::Slurm).with_program("scontrol", SCONTROL).with("running", "");
    let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    assert!(tree.read("running").contains("Prolog=/etc/gleaner"), "it was told");
    tree.put("down", "");
    let gone = uninstall(Manager::Slurm, &tree.site(), false).expect("it is there");
    assert!(gone.left.iter().any(|left| left.contains("drains a node")), "{:?}", gone.left);
    assert!(tree.has("etc/gleaner/hooks/slurm/prolog"), "a missing Prolog drains the node");
    assert!(!tree.read("etc/slurm/slurm.conf").contains("gleaner"));
    tree.remove("down");
    let gone = uninstall(Manager::Slurm, &tree.site(), false).expect("it is there");
    assert!(gone.left.iter().any(|left| left.contains("only now")), "{:?}", gone.left);
    assert!(tree.has("etc/gleaner/hooks/slurm/prolog"), "a node may not have read it yet");
    assert!(gone.is_unfinished);
    let gone = uninstall(Manager::Slurm, &tree.site(), false).expect("it is there");
    assert_eq!((gone.left, gone.is_unfinished), (Vec::new(), false));
    assert!(!tree.has("etc/gleaner"));
}
