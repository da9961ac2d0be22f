//! What an owner shows commands, what the host mounts there, and what is never shown.

use std::fs;
use std::path::{Path, PathBuf};

use gleaner_agent::Config;
use tempfile::TempDir;

use super::{Host, Kind, ORDINARY, is_root, marker, on_each};
use crate::agent::{Folders, Handicap, block_on};
use crate::broker::{command, output, script, text};
use crate::watch::marked;

/// A folder that is not in /tmp, where commands have one of their own, and this may have been built.
/// To root's home nobody else comes through. Where this is built root itself may not come through once
/// it has given up its rights, as a command does: a checkout may lie in a folder that is another user's.
fn outside_tmp() -> TempDir {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let bases = [Some(env!("CARGO_TARGET_TMPDIR").into()), Some("/var/lib".into()), home];
    let is_outside = |base: &PathBuf| !["/tmp", "/var/tmp"].iter().any(|tmp| base.starts_with(tmp));
    let found =
        bases.into_iter().flatten().filter(|base| is_outside(base) && is_open_to_its_user(base));
    found.map(tempfile::tempdir_in).find_map(Result::ok).expect("a folder outside of /tmp")
}

/// Whether this user comes through to a folder without a capability.
fn is_open_to_its_user(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let user = rustix::process::geteuid().as_raw();
    folder.ancestors().all(|part| {
        let Ok(found) = fs::metadata(part) else { return false };
        let passes = if found.uid() == user { 0o100 } else { 0o001 };
        found.mode() & passes != 0
    })
}

pub(super) fn an_owner_shows_more() {
    let shown = outside_tmp();
    let file = shown.path().join("asset");
    fs::write(&file, "to be read").expect("written");
    let key = gleaner_identity::KeyPair::generate().expect("made");
    key.write_new(&shown.path().join("key")).expect("written");
    for (path, mode) in [(shown.path(), 0o755), (&file, 0o644)] {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    }
    let (file, key) = (file.to_str().expect("plain"), shown.path().join("key"));
    let show = |_: &Folders, config: &mut Config| {
        config.commands.read = vec![shown.path().to_owned()];
    };
    on_each(show, async |host| {
        // Another user may not come through to it, wherever this test is built.
        let is_reached = host.kind.user.is_none();
        let answers = host.probe(&[("read", file), ("write", file)]).await;
        if is_reached || host.kind.handicap == Handicap::None {
            assert_eq!(answers[0], "ok", "{:?}", host.kind);
        }
        assert_ne!(answers[1], "ok", "{:?}", host.kind);
        assert_eq!(fs::read_to_string(file).expect("there"), "to be read");
    });
    if !is_root() {
        return;
    }
    // What is the agent's own is not shown even there, whichever way leads to it.
    let story = {
        let shown = shown.path().to_owned();
        move || block_on(keeps_the_agents_own(&shown, &key))
    };
    std::thread::spawn(story).join().expect("the story holds");
}

async fn keeps_the_agents_own(shown: &Path, key: &Path) {
    use rustix::mount::mount_bind;
    let mounts = Path::new("/mnt");
    own_mounts(mounts);
    let (bound, disk) = (mounts.join("bound"), mounts.join("disk"));
    let (link, work) = (mounts.join("link"), shown.join("work"));
    for folder in [&bound, &disk, &work] {
        fs::create_dir_all(folder).expect("ours");
    }
    mount_bind(shown, &bound).expect("root");
    std::os::unix::fs::symlink(shown, &link).expect("ours");
    let kind = Kind { user: None, handicap: Handicap::None };
    for read in [shown, &link, &bound] {
        let mut host = Host::start(kind, |_, config| {
            config.commands.read = vec![read.to_owned(), disk.clone()];
            config.key_file = Some(key.to_owned());
            config.work_dir = Some(work.clone());
        })
        .await;
        let look = format!("cd {} && cat asset; cat key; ls -A work", read.display());
        let report = host.session.perform(script(&format!("{look}; true")), None).await;
        assert_eq!(text(&report, "stdout"), "to be read", "{read:?} shows what is the agent's");
    }
    // Nor does a part of it come in from elsewhere: then nothing runs.
    fs::create_dir_all(work.join("cache")).expect("ours");
    mount_bind(work.join("cache"), &disk).expect("root");
    let host = Host::start(kind, |_, config| {
        config.commands.read = vec![disk.clone()];
        config.work_dir = Some(work.clone());
    })
    .await;
    let said = host.says();
    assert!(said.starts_with("refused: ") && said.contains("lies where commands may"), "{said}");
}

/// With mounts of this story's own, and without Landlock, which would stop writing anyway.
pub(super) fn mounted_later_is_read_only() {
    if !is_root() {
        return;
    }
    for user in [None, Some(ORDINARY)] {
        for (handicap, arrives) in [(Handicap::NoLandlock, true), (Handicap::OldMounts, false)] {
            let story = move || block_on(mounts_later(Kind { user, handicap }, arrives));
            std::thread::spawn(story).join().expect("the story holds");
        }
    }
}

async fn mounts_later(kind: Kind, arrives: bool) {
    let shown = Path::new("/mnt");
    own_mounts(shown);
    let mut host = Host::start(kind, |_, config| {
        config.commands.read = vec![shown.to_owned()];
    })
    .await;
    if !host.has_namespaces() {
        println!("{kind:?}: {}", host.says());
        return;
    }
    output(&host.session.perform(command(&["/bin/true"]), None).await);
    let runners = host.folders.groups();
    mount_at(&shown.join("late"));
    let answers = host.probe(&[("write", "/mnt/late/x"), ("write", "/mnt/x")]).await;
    assert!(answers.iter().all(|answer| answer.starts_with("Read-only file")), "{answers:?}");
    let look = "grep /mnt/late /proc/self/mountinfo || echo none";
    let found = host.session.perform(script(look), None).await;
    let expected = if arrives { " ro,nosuid,nodev," } else { "none" };
    assert!(text(&found, "stdout").contains(expected), "{kind:?}: {found:?}");
    assert_eq!(host.folders.groups(), runners, "they were up before");

    let marker = marker("onlooker");
    let wait = format!(
        ": {marker}; until [ -e /mnt/go ]; do sleep 0.01; done; echo x > /mnt/during/x; \
         grep -c /mnt/during /proc/self/mountinfo; echo x > /dev/null && head -c 3 /dev/zero | wc -c"
    );
    host.session.give(script(&wait), &[None]).await;
    crate::watch::wait_until("the onlooker", || !marked(&marker).is_empty());
    mount_at(&shown.join("during"));
    fs::write(shown.join("go"), "").expect("ours");
    let report = host.session.hear_report().await;
    assert_eq!(text(&report, "stdout"), "0\n3\n", "{kind:?}: nothing arrives in one that runs");
    assert!(fs::symlink_metadata("/mnt/during/x").is_err());
}

/// Gives this thread mounts of its own, with an empty folder at `shown` that is shared as a host's
/// folders are.
#[expect(unsafe_code, reason = "rustix marks it so for one flag that is not used here")]
fn own_mounts(shown: &Path) {
    use rustix::mount::{MountPropagationFlags, mount_change};
    // SAFETY: files are not unshared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.expect("root");
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).expect("ours");
    mount_at(shown);
    mount_change(shown, MountPropagationFlags::SHARED).expect("ours");
}

fn mount_at(path: &Path) {
    use rustix::mount::{MountFlags, mount};
    fs::create_dir_all(path).expect("ours");
    mount("tmpfs", path, "tmpfs", MountFlags::empty(), c"mode=0777").expect("root");
}
