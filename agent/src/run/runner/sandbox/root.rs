//! The root that commands see: built once by each runner, in namespaces of its own.
//!
//! A small memory file system, read only, into which the system's folders are bound. Each command
//! gets a copy of the mounts, with its own folder, `/tmp` and `/proc` in it, and nothing else of
//! the host.
//!
//! # Invariants
//! - What is unmounted on the host is unmounted here: a runner keeps no disk busy. Only a command
//!   keeps what was there when it started, and before Linux 5.12 a runner does.
//! - Everything is read only but a command's own two folders. What the host mounts below a shown
//!   folder later is so too, for the commands that start after it; nothing arrives in one that runs.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount,
};
use rustix::thread::UnshareFlags;

use super::gpu_view;
use super::landing::can_set_mounts;
use super::mount_table::{self, MountTable, Sighting};
use super::visible::{DEVICES, ETC, ETC_OF_NETWORK, PROC, SYSTEM, leads_into};
use super::{Confines, Identity, Refusal};

/// Where a command finds its folder.
pub(super) const TASK: &str = "/task";
/// Where it finds its folder for passing things.
pub(super) const TMP: &str = "/tmp";
/// Where it finds a program that lies in no folder that it may see.
const PROGRAMS: &str = "/program";
/// The machine's name, the same on every host: outputs are compared.
const HOST_NAME: &[u8] = b"gleaner";
/// What the root may hold: copies of small files.
const ROOT_OPTIONS: &std::ffi::CStr = c"mode=0755,size=16m,nr_inodes=4096";
/// Largest file that is copied; a larger one is bound.
const COPY_BYTES_MAX: u64 = 1 << 20;

/// The root.
#[derive(Debug)]
pub(super) struct NewRoot {
    /// Where the runner sees it.
    pub(super) path: PathBuf,
    /// Whether what the host mounts and unmounts later is so here too; each command seals it anew.
    pub(super) follows_host: bool,
    /// Where a command sees programs that lie elsewhere on the host.
    programs: BTreeMap<PathBuf, PathBuf>,
}

impl NewRoot {
    /// Moves this process, which must have one thread only, into namespaces of its own and builds
    /// the root in `base`.
    pub(super) fn raise(
        confines: &Confines,
        identity: &Identity,
        base: &Path,
    ) -> Result<Self, Refusal> {
        enter_namespaces(confines.network)?;
        let say = |what: &'static str| move |error: io::Error| format!("cannot {what}: {error}");
        if !confines.network {
            rustix::system::sethostname(HOST_NAME)
                .map_err(|error| say("set a host name")(error.into()))?;
        }
        let follows_host = can_set_mounts();
        let ties = match follows_host {
            true => MountPropagationFlags::DOWNSTREAM,
            // What came later could not be made read only before somebody writes to it.
            false => MountPropagationFlags::PRIVATE,
        };
        mount_change("/", ties | MountPropagationFlags::REC)
            .map_err(|error| say("make mounts its own")(error.into()))?;
        let path = base.join("root");
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(say("make a root"))?;
        // The kernel names mounts without links.
        let path = fs::canonicalize(path).map_err(say("find a root"))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", &path, "tmpfs", flags, ROOT_OPTIONS)
            .map_err(|error| say("mount a root")(error.into()))?;
        let mut root = Self { path, follows_host, programs: BTreeMap::new() };
        root.fill(confines, identity).map_err(|(path, error)| {
            format!("cannot show {} to commands: {error}", path.display())
        })?;
        let to_seal = say("make what commands see read only");
        seal(&root.path, |_| true).map_err(to_seal)?;
        let covers = root.hide(&confines.hidden).map_err(|(path, error)| {
            format!("cannot keep {} from commands: {error}", path.display())
        })?;
        seal(&root.path, |point| covers.iter().any(|cover| cover == point)).map_err(to_seal)?;
        Ok(root)
    }

    /// Where a command finds a listed program.
    pub(super) fn seen(&self, program: &Path) -> io::Result<PathBuf> {
        match self.programs.get(program) {
            Some(path) => Ok(path.clone()),
            // The link may lead through a folder that is not shown.
            None => fs::canonicalize(program),
        }
    }

    fn fill(
        &mut self,
        confines: &Confines,
        identity: &Identity,
    ) -> Result<(), (PathBuf, io::Error)> {
        let network = if confines.network { ETC_OF_NETWORK } else { &[] };
        let proc = if confines.layers.fresh_proc { &[][..] } else { PROC };
        let shown = [SYSTEM, ETC, network, DEVICES, proc].into_iter().flatten().map(Path::new);
        for path in shown.chain(confines.read.iter().map(PathBuf::as_path)) {
            let shown = match leads_into(path, &confines.hidden) {
                None => self.show(path, path),
                Some(own) => Err(io::Error::other(format!("it leads into {}", own.display()))),
            };
            shown.map_err(|error| (path.to_owned(), error))?;
        }
        for (index, program) in confines.programs.iter().enumerate() {
            self.show_program(index, program).map_err(|error| (program.clone(), error))?;
        }
        for path in gpu_view::devices().into_iter().chain(gpu_view::files(&confines.hidden)) {
            self.make_place(&path).map_err(|error| (path.clone(), error))?;
        }
        self.furnish(confines, identity).map_err(|error| (self.path.clone(), error))
    }

    /// Where the runner sees what a command sees at `path`.
    pub(super) fn inside(&self, path: &Path) -> PathBuf {
        self.path.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Shows a file, folder or link of the host; what is not there is passed over.
    fn show(&self, source: &Path, at: &Path) -> io::Result<()> {
        let Ok(found) = fs::symlink_metadata(source) else { return Ok(()) };
        let target = self.inside(at);
        if fs::symlink_metadata(&target).is_ok() {
            // In a folder that is shown already.
            return Ok(());
        }
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        if found.is_symlink() && is_of_system(source) {
            return std::os::unix::fs::symlink(fs::read_link(source)?, target);
        }
        let Ok(found) = fs::metadata(source) else { return Ok(()) };
        if found.is_dir() {
            fs::create_dir(&target)?;
            Ok(mount_bind_recursive(source, &target)?)
        } else if found.is_file() && found.len() <= COPY_BYTES_MAX && is_etc(source) {
            match fs::read(source) {
                Ok(text) => fs::write(target, text),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                Err(error) => Err(error),
            }
        } else {
            fs::write(&target, "")?;
            Ok(mount_bind(source, &target)?)
        }
    }

    /// Makes an empty file or folder, on which work that has the GPU finds what lies there on the
    /// host; nothing where the host's is shown already.
    fn make_place(&self, path: &Path) -> io::Result<()> {
        let place = self.inside(path);
        if fs::symlink_metadata(&place).is_ok() {
            return Ok(());
        }
        if path.is_dir() {
            return fs::create_dir_all(place);
        }
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(place, "")
    }

    fn show_program(&mut self, index: usize, program: &Path) -> io::Result<()> {
        // One that has gone since is missed when it is to run.
        let Ok(file) = fs::canonicalize(program) else { return Ok(()) };
        if fs::symlink_metadata(self.inside(&file)).is_ok() {
            // In a folder that is shown.
            return Ok(());
        }
        let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let seen = Path::new(PROGRAMS).join(index.to_string()).join(name);
        self.show(&file, &seen)?;
        self.programs.insert(program.to_owned(), seen);
        Ok(())
    }

    /// What every command finds, whatever the host has.
    fn furnish(&self, confines: &Confines, identity: &Identity) -> io::Result<()> {
        for folder in [TASK, TMP, "/proc", "/dev", "/etc", "/var", "/run", "/root", "/home"] {
            fs::create_dir_all(self.inside(Path::new(folder)))?;
        }
        for (link, to) in [
            ("/dev/fd", "/proc/self/fd"),
            ("/dev/stdin", "/proc/self/fd/0"),
            ("/dev/stdout", "/proc/self/fd/1"),
            ("/dev/stderr", "/proc/self/fd/2"),
            ("/dev/shm", TMP),
            ("/var/tmp", TMP),
        ] {
            std::os::unix::fs::symlink(to, self.inside(Path::new(link)))?;
        }
        let Identity { uid, gid, .. } = identity;
        let users = format!(
            "root:x:0:0:root:/root:/bin/sh\n\
             gleaner:x:{uid}:{gid}:harvested work:{TASK}:/bin/sh\n\
             nobody:x:65534:65534:nobody:/:/bin/false\n"
        );
        let groups = format!("root:x:0:\ngleaner:x:{gid}:\nnogroup:x:65534:\n");
        let names = "passwd: files\ngroup: files\nhosts: files dns\n";
        let mut files = vec![("passwd", users), ("group", groups), ("nsswitch.conf", names.into())];
        if !confines.network {
            files.push(("hosts", "127.0.0.1 localhost\n::1 localhost\n".into()));
        }
        for (name, text) in files {
            fs::write(self.path.join("etc").join(name), text)?;
        }
        Ok(())
    }

    /// Covers what is nobody's business wherever it is to be seen; returns where that was.
    fn hide(&self, hidden: &[PathBuf]) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
        let say = |path: &Path| {
            let path = path.to_owned();
            move |error| (path, error)
        };
        let table = MountTable::read().map_err(say(&self.path))?;
        let programs = self.inside(Path::new(PROGRAMS));
        let mut covers = Vec::new();
        for path in hidden {
            let Ok(path) = fs::canonicalize(path) else { continue };
            for Sighting { place, is_part } in table.sightings(&path, &self.path) {
                if place.starts_with(&programs) {
                    // A file that its owner has listed as a program.
                    continue;
                }
                if is_part {
                    let shown = place.strip_prefix(&self.path).unwrap_or(&place);
                    let text = format!("a part of it is mounted at /{}", shown.display());
                    return Err((path, io::Error::other(text)));
                }
                cover(&place).map_err(say(&path))?;
                covers.push(place);
            }
        }
        Ok(covers)
    }
}

fn cover(place: &Path) -> io::Result<()> {
    if fs::symlink_metadata(place)?.is_dir() {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        Ok(mount("tmpfs", place, "tmpfs", flags, c"mode=0555,size=4k")?)
    } else {
        Ok(mount_bind("/dev/null", place)?)
    }
}

/// Top-level links such as `/bin` are shown as links: what they lead to is shown too.
fn is_of_system(path: &Path) -> bool {
    SYSTEM.iter().any(|system| Path::new(system) == path)
}

fn is_etc(path: &Path) -> bool {
    path.starts_with("/etc")
}

#[expect(unsafe_code, reason = "rustix marks it so for one flag that is not used here")]
fn enter_namespaces(network: bool) -> Result<(), Refusal> {
    let say = |what: &'static str| move |error: io::Error| format!("cannot {what}: {error}");
    if !rustix::process::geteuid().is_root() {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        // SAFETY: files are not unshared.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }
            .map_err(|error| say("make a user namespace")(error.into()))?;
        for (file, text) in [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("{uid} {uid} 1")),
            ("gid_map", format!("{gid} {gid} 1")),
        ] {
            fs::write(Path::new("/proc/self").join(file), text)
                .map_err(say("map its user into a user namespace"))?;
        }
    }
    let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWUTS | UnshareFlags::NEWCGROUP;
    flags.set(UnshareFlags::NEWNET, !network);
    // SAFETY: files are not unshared.
    unsafe { rustix::thread::unshare_unsafe(flags) }
        .map_err(|error| say("make namespaces")(error.into()))
}

/// Makes what is mounted below `root`, where `is_meant`, read only, with the flags that it has.
fn seal(root: &Path, is_meant: impl Fn(&Path) -> bool) -> io::Result<()> {
    let devices = root.join("dev");
    for mounted in MountTable::read()?.below(root).filter(|mounted| is_meant(&mounted.point)) {
        let added = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
        let mut flags = mount_table::flags(mounted) | added;
        if !mounted.point.starts_with(&devices) {
            flags |= MountFlags::NODEV;
        }
        mount_remount(&mounted.point, flags, c"")?;
    }
    Ok(())
}

/// A path for a system call.
pub(super) fn c_path(path: &Path) -> io::Result<std::ffi::CString> {
    Ok(std::ffi::CString::new(path.as_os_str().as_bytes())?)
}
