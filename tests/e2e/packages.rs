//! What `packaging/build` makes: the tarball and the Debian package, unpacked and looked at, and
//! the package put through the life that dpkg gives it, with stand-ins for systemd and users.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use gleaner_calm::Turn;

use crate::program::{gleaner, run, write_program};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Files of which an administrator's version stays.
const CONFFILES: &str =
    "/etc/gleaner/agent.toml\n/etc/gleaner/broker.toml\n/etc/gleaner/monitor.toml\n";

/// Runs a program to its end, however long it takes.
#[track_caller]
fn done(command: &mut Command) -> String {
    let said = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let both = text(&said.stdout) + &text(&said.stderr);
    assert!(said.status.success(), "{command:?}\n{both}");
    both
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|said| said.status.success())
}

/// Packages of the program under test, and folders to unpack them in.
struct Packages {
    folder: tempfile::TempDir,
    tarball: PathBuf,
    /// Where there is a dpkg.
    deb: Option<PathBuf>,
}

/// The programs under test as this one and its `-hook`, without what is there for debuggers, which
/// only makes them long.
fn strip_to(program: &Path) {
    let hook = format!("{}-hook", program.display());
    for (built, to) in [
        (env!("CARGO_BIN_EXE_gleaner"), program),
        (env!("CARGO_BIN_EXE_gleaner-hook"), Path::new(&hook)),
    ] {
        done(Command::new("strip").arg("-o").arg(to).arg(built));
    }
}

impl Packages {
    fn build() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (program, out) = (folder.path().join("program"), folder.path().join("out"));
        strip_to(&program);
        let mut build = Command::new(Path::new(ROOT).join("packaging/build"));
        build.arg("--program").arg(&program).arg("--out").arg(&out);
        // Nobody sends these to anyone.
        build.env("DPKG_DEB_COMPRESSOR_TYPE", "none").env("GZIP", "-1");
        done(&mut build);
        done(
            Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&out),
        );
        let names = fs::read_dir(&out).expect("a folder").map(|one| one.expect("listed").path());
        let names: Vec<PathBuf> = names.collect();
        let find = |end: &str| names.iter().find(|path| path.to_string_lossy().ends_with(end));
        let tarball = find("-linux.tar.gz").expect("a tarball").clone();
        let deb = find(".deb").cloned();
        assert_eq!(names.len(), 2 + usize::from(deb.is_some()), "{names:?}");
        assert!(deb.is_some() || !(has("dpkg-deb") && has("dpkg-shlibdeps")), "no package");
        Self { folder, tarball, deb }
    }

    fn at(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(&path).expect("a folder");
        path
    }
}

/// Files and links below a folder, by their path from there.
fn files(root: &Path) -> BTreeSet<String> {
    let (mut all, mut open) = (BTreeSet::new(), vec![root.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("listed").path();
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
            } else {
                let path = path.strip_prefix(root).expect("below it");
                all.insert(path.to_str().expect("plain").to_owned());
            }
        }
    }
    all
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What lies below the prefix in both, and is as it is in the sources.
fn check_tree(tree: &Path, prefix: &str, zsh: &str) {
    let all = files(tree);
    for path in &all {
        let file = tree.join(path);
        assert!([0o644, 0o755].contains(&mode(&file)), "{path}: {:o}", mode(&file));
    }
    let program = tree.join("bin/gleaner");
    assert_eq!(mode(&program), 0o755);
    assert!(run(Command::new(&program).arg("--version")).ok().starts_with("gleaner "));
    let hook = tree.join("bin/gleaner-hook");
    assert_eq!(mode(&hook), 0o755);
    assert!(run(Command::new(&hook).args(["preflight", "--help"])).ok().contains("--run-dir"));

    for (packed, source, run_by) in [
        ("system/gleaner-agent", "agent/systemd/gleaner-agent", "/usr/local/bin/gleaner"),
        ("user/gleaner-agent", "agent/systemd/gleaner-agent-desktop", "%h/.local/bin/gleaner"),
        ("system/gleaner-broker", "broker/systemd/gleaner-broker", "/usr/local/bin/gleaner"),
        (
            "system/gleaner-monitor",
            "resource-monitor/systemd/gleaner-monitor",
            "/usr/local/bin/gleaner",
        ),
    ] {
        let packed = text(&tree.join("lib/systemd").join(format!("{packed}.service")));
        let program = format!("{prefix}/bin/gleaner");
        assert!(packed.contains(&format!("\nExecStart={program} ")), "{packed}");
        let source = text(&Path::new(ROOT).join(format!("{source}.service")));
        assert_eq!(packed, source.replace(run_by, &program));
    }
    assert_eq!(all.iter().filter(|path| path.starts_with("lib/")).count(), 5, "{all:?}");
    let at_boot = tree.join("lib/tmpfiles.d/gleaner.conf");
    assert_eq!(text(&at_boot), text(&Path::new(ROOT).join("agent/systemd/tmpfiles.conf")));
    has_a_load_average_from_its_boot_on(&at_boot);
    let rights = text(&tree.join("share/gleaner/systemd/watch-workers.conf"));
    assert_eq!(rights, text(&Path::new(ROOT).join("agent/systemd/watch-workers.conf")));
    // An agent gives what it makes in its run folder that folder's mode.
    let agent = text(&tree.join("lib/systemd/system/gleaner-agent.service"));
    assert!(agent.contains("\nRuntimeDirectoryMode=2775\n"), "{agent}");
    assert!(!agent.contains("\nRestrictSUIDSGID="), "it could not start: {agent}");

    let completions = [
        ("bash", "share/bash-completion/completions/gleaner".to_owned()),
        ("fish", "share/fish/vendor_completions.d/gleaner.fish".to_owned()),
        ("zsh", format!("share/zsh/{zsh}/_gleaner")),
    ];
    for (shell, path) in &completions {
        assert_eq!(text(&tree.join(path)), run(&mut gleaner(["completions", shell])).ok());
    }

    let pages = tempfile::tempdir().expect("a folder");
    run(&mut gleaner(["man", pages.path().to_str().expect("plain")])).ok();
    let pages: BTreeSet<String> =
        files(pages.path()).iter().map(|page| format!("share/man/man1/{page}.gz")).collect();
    let packed = all.iter().filter(|path| path.starts_with("share/man/")).cloned();
    assert_eq!(packed.collect::<BTreeSet<_>>(), pages);
    let page = done(Command::new("gzip").arg("-dc").arg(tree.join("share/man/man1/gleaner.1.gz")));
    assert!(page.contains(".SH NAME"), "{page}");

    check_hooks(tree, &all);
    for example in ["primes.c", "primes.rs", "gleaner.h"] {
        let example = format!("agent/examples/wasm/{example}");
        let packed = tree.join("share/doc/gleaner").join(&example);
        assert_eq!(text(&packed), text(&Path::new(ROOT).join(&example)));
    }
    let pages = [
        "README.md",
        "packaging/README.md",
        "agent/README.md",
        "agent/kernels/README.md",
        "broker/README.md",
        "broker/simulator/README.md",
        "tests/README.md",
    ];
    for page in pages {
        let page = tree.join("share/doc/gleaner").join(page);
        let folder = page.parent().expect("it is in one");
        let links: Vec<String> = links(&text(&page));
        assert!(!links.is_empty(), "{}", page.display());
        for link in links {
            assert!(folder.join(&link).exists(), "{}: {link} is not there", page.display());
        }
    }
    let notices = tree.join("share/doc/gleaner/third-party.txt.gz");
    let notices = done(Command::new("gzip").arg("-dc").arg(notices));
    for words in
        ["wasmtime ", "sled ", "warp ", "MIT OR Apache-2.0", "Permission is hereby granted"]
    {
        assert!(notices.contains(words), "no {words:?} among the licences");
    }
    for path in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        assert_eq!(
            text(&tree.join("share/doc/gleaner").join(path)),
            text(&Path::new(ROOT).join(path))
        );
    }
}

/// A manager that reads the agent's load average may start before any agent has, and one that reads it
/// already keeps what the agent wrote.
#[track_caller]
fn has_a_load_average_from_its_boot_on(at_boot: &Path) {
    if !has("systemd-tmpfiles") {
        println!("no systemd-tmpfiles here");
        return;
    }
    let host = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(host.path().join("etc/tmpfiles.d")).expect("a folder");
    fs::copy(at_boot, host.path().join("etc/tmpfiles.d/gleaner.conf")).expect("copied");
    let boots = || {
        let mut create = Command::new("systemd-tmpfiles");
        create.arg(format!("--root={}", host.path().display()));
        done(create.args(["--create", "gleaner.conf"]))
    };
    boots();
    let run_dir = host.path().join("run/gleaner");
    let file = run_dir.join("loadavg");
    assert_eq!(fs::read_link(&file).expect("a link"), Path::new("/proc/loadavg"));
    fs::set_permissions(&run_dir, Permissions::from_mode(0o2775)).expect("set");
    fs::remove_file(&file).expect("there");
    fs::write(&file, "0.00 0.00 0.00 1/1 1\n").expect("written");
    boots();
    assert_eq!((text(&file).as_str(), mode(&run_dir)), ("0.00 0.00 0.00 1/1 1\n", 0o2775));
}

/// Files that a page points to.
fn links(page: &str) -> Vec<String> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.map(|target| target.split('#').next().unwrap_or_default());
    files.filter(|file| !file.is_empty() && !file.contains("://")).map(str::to_owned).collect()
}

/// The defaults of every part that has a unit.
fn check_configurations(folder: &Path) {
    for part in ["agent", "broker", "monitor"] {
        let printed = run(&mut gleaner([part, "--print-config"])).ok();
        assert_eq!(text(&folder.join(format!("{part}.toml"))), printed);
    }
}

/// Every hook of the sources, and nothing that builds or tests them.
fn check_hooks(tree: &Path, all: &BTreeSet<String>) {
    let sources = Path::new(ROOT).join("hooks");
    let is_hook = |path: &String| {
        let others = ["src/", "tests/", "python/tests/", "Cargo.toml"];
        !others.iter().any(|other| path.starts_with(other)) && !path.contains("__pycache__")
    };
    let meant: BTreeSet<String> = files(&sources).into_iter().filter(is_hook).collect();
    let packed = all.iter().filter_map(|path| path.strip_prefix("share/gleaner/hooks/"));
    assert_eq!(packed.map(String::from).collect::<BTreeSet<_>>(), meant);
    assert!(meant.contains("slurm/prolog") && meant.contains("openpbs/gleaner_openpbs.py"));
    for path in &meant {
        let (packed, source) = (tree.join("share/gleaner/hooks").join(path), sources.join(path));
        assert_eq!(text(&packed), text(&source), "{path}");
        let is_run = |file: &Path| mode(file) & 0o100 != 0;
        assert_eq!(is_run(&packed), is_run(&source), "{path}");
    }
}

#[test]
fn packages_have_all_of_it_in_its_place_and_come_and_go_cleanly() {
    let _turn = Turn::shared();
    let packages = Packages::build();

    let listed = done(Command::new("tar").arg("-tzf").arg(&packages.tarball));
    let is_ours = |name: &str| name.starts_with("gleaner-") && !name.ends_with('/');
    assert!(listed.lines().all(is_ours), "folders that are there must stay as they are: {listed}");
    let local = packages.at("local");
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(&packages.tarball).arg("--strip-components=1").arg("-C").arg(&local);
    done(&mut unpack);
    check_tree(&local, "/usr/local", "site-functions");
    check_configurations(&local.join("share/doc/gleaner"));
    is_taken_away_as_the_page_says(&packages.tarball, &local);

    let Some(deb) = &packages.deb else {
        println!("no dpkg here");
        return;
    };
    let field = |name: &str| done(Command::new("dpkg-deb").arg("-f").arg(deb).arg(name));
    let version = run(&mut gleaner(["--version"])).ok().replace("gleaner ", "");
    assert_eq!((field("Package").trim(), field("Version")), ("gleaner", version));
    let depends = field("Depends");
    assert!(depends.contains("libc6 (>= "), "{depends}");
    let root = packages.at("root");
    done(Command::new("dpkg-deb").arg("-x").arg(deb).arg(&root));
    for program in ["gleaner", "gleaner-hook"] {
        needs_only(&root.join("usr/bin").join(program), &depends);
    }
    check_tree(&root.join("usr"), "/usr", "vendor-completions");
    check_configurations(&root.join("etc/gleaner"));
    let control = packages.at("control");
    done(Command::new("dpkg-deb").arg("-e").arg(deb).arg(&control));
    assert_eq!(text(&control.join("conffiles")), CONFFILES);
    done(
        Command::new("md5sum")
            .args(["--check", "--strict"])
            .arg(control.join("md5sums"))
            .current_dir(&root),
    );
    live(deb, &packages);
}

/// By the page's own line, for this tarball and this folder.
#[track_caller]
fn is_taken_away_as_the_page_says(tarball: &Path, unpacked: &Path) {
    let page = text(&Path::new(ROOT).join("hooks/README.md"));
    let line = page.lines().map(str::trim).find(|line| line.starts_with("tar -tzf "));
    let line = line.expect("the page has it");
    let (name, prefix) = ("gleaner-0.1.0-x86_64-linux.tar.gz", "/usr/local");
    assert!(line.contains(name) && line.contains(prefix), "{line}");
    let line = line.replace(name, tarball.to_str().expect("plain"));
    let line = line.replace(prefix, unpacked.to_str().expect("plain"));
    done(Command::new("sh").args(["-ec", &line]));
    assert_eq!(files(unpacked), BTreeSet::new());
}

/// That the packages which a package depends on have each library that a program needs to start.
#[track_caller]
fn needs_only(program: &Path, depends: &str) {
    let packages = depends.split(',').filter_map(|one| one.split_whitespace().next());
    let packages: Vec<&str> = packages.collect();
    let header = done(Command::new("readelf").arg("-d").arg(program));
    let needed = header.lines().filter(|line| line.contains("(NEEDED)"));
    let names = needed.filter_map(|line| line.split_once('[')?.1.split(']').next());
    let names: Vec<&str> = names.collect();
    assert!(names.contains(&"libc.so.6"), "{header}");
    for name in names {
        let has = done(Command::new("dpkg").arg("-S").arg(format!("*/{name}")));
        let mut by = has.lines().filter_map(|line| line.split(':').next());
        assert!(by.any(|package| packages.contains(&package)), "{name} of {depends}: {has}");
        // The C library, what belongs to it, and what unwinds the stack.
        let is_of_the_system = ["libc.so", "libm.so", "libgcc_s.so", "ld-linux"];
        assert!(is_of_the_system.iter().any(|of| name.starts_with(of)), "{name}: {header}");
    }
    let versions = done(Command::new("readelf").arg("--version-info").arg(program));
    let wanted = versions.split_whitespace().filter_map(|word| word.strip_prefix("GLIBC_2."));
    let newest = wanted.filter_map(|minor| minor.split('.').next()?.parse::<u32>().ok()).max();
    // As the README says.
    assert!(newest.is_some_and(|minor| minor <= 35), "{newest:?}");
}

/// Installs the package below a scratch root, installs it again, and takes it away.
fn live(deb: &Path, packages: &Packages) {
    let host = packages.at("host");
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "run/systemd/system", "bin"] {
        fs::create_dir_all(host.join(folder)).expect("a folder");
    }
    fs::write(host.join("var/lib/dpkg/status"), "").expect("written");
    let (told, fails) = (host.join("told"), host.join("systemd-fails"));
    let stand_in = format!(
        "#!/bin/sh\nname=${{0##*/}}\n[ \"$name\" != getent ] || exec grep -q \"^useradd.* $2\\$\" '{told}'\n\
         echo \"$name $*\" >>'{told}'\n[ \"$name\" != systemctl ] || [ ! -e '{fails}' ]\n",
        told = told.display(),
        fails = fails.display()
    );
    // Copied by another process: one that this one writes is busy while a child of another test has it.
    fs::write(host.join("stand-in"), stand_in).expect("written");
    fs::set_permissions(host.join("stand-in"), Permissions::from_mode(0o755)).expect("set");
    for name in ["systemctl", "systemd-tmpfiles", "useradd", "getent"] {
        done(Command::new("cp").arg(host.join("stand-in")).arg(host.join("bin").join(name)));
    }
    fs::write(&told, "").expect("written");
    let dpkg = |arguments: &[&str]| {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", host.display()));
        // No root of its own to change into, no libraries there, and not always root.
        dpkg.args(["--force-script-chrootless", "--force-not-root", "--force-depends"]);
        dpkg.args(["--force-bad-path", "--force-unsafe-io"]).args(arguments);
        dpkg.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", host.join("bin").display()));
        let said = done(&mut dpkg);
        let lines = text(&told);
        // Users are there from now on; what else was told is news next time.
        let users = lines.lines().filter(|line| line.starts_with("useradd"));
        fs::write(&told, users.map(|line| format!("{line}\n")).collect::<String>())
            .expect("written");
        (said, lines)
    };
    let deb = deb.to_str().expect("plain");

    let (_, told) = dpkg(&["--install", deb]);
    for user in ["gleaner", "gleaner-server"] {
        let end = format!(" {user}");
        let is_made = told.lines().any(|line| line.starts_with("useradd ") && line.ends_with(&end));
        assert!(is_made, "no {user}: {told}");
    }
    assert!(told.contains("systemctl daemon-reload"), "{told}");
    assert!(told.contains("systemd-tmpfiles --create gleaner.conf"), "{told}");
    assert!(!["start", "enable"].iter().any(|word| told.contains(word)), "unasked: {told}");
    // A unit that is masked, or does not come up, is no reason to leave a package half-way.
    fs::write(&fails, "").expect("written");
    let config = host.join("etc/gleaner/agent.toml");
    fs::write(&config, "origin = \"farm\"\n").expect("written");
    let (_, told) = dpkg(&["--install", deb]);
    for part in ["agent", "broker", "monitor"] {
        let restart = format!("systemctl --no-block try-restart gleaner-{part}.service");
        assert!(told.contains(&restart), "{told}");
    }
    assert_eq!(told.matches("useradd").count(), 2, "it has its users already: {told}");
    assert_eq!(text(&config), "origin = \"farm\"\n", "an administrator's words stay");

    let record = host.join("etc/gleaner/hooks/slurm");
    fs::create_dir_all(&record).expect("a folder");
    fs::write(record.join("installed.json"), "{}").expect("written");
    let (said, told) = dpkg(&["--remove", "gleaner"]);
    assert!(said.contains("`gleaner farm uninstall --farm slurm`"), "{said}");
    assert!(told.contains("systemctl disable --now gleaner-agent.service"), "{told}");
    assert!(!host.join("usr/bin/gleaner").exists() && config.exists());
    for folder in ["var/cache/gleaner/tasks", "var/lib/gleaner-broker/gleaner-data"] {
        fs::create_dir_all(host.join(folder)).expect("a folder");
    }
    let token = host.join("etc/gleaner/token");
    fs::write(&token, "").expect("written");
    dpkg(&["--purge", "gleaner"]);
    assert!(token.exists(), "what an administrator made stays");
    assert!(!config.exists() && !host.join("var/cache/gleaner").exists());
    assert!(
        host.join("var/lib/gleaner-broker/gleaner-data").exists(),
        "jobs are not ours to delete"
    );
    assert!(record.join("installed.json").exists(), "hooks that still stand need it");
}

/// A stand-in for cargo "builds" the programs under test: a release takes minutes.
#[test]
fn without_a_program_a_release_is_built_and_packed() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    for name in ["built", "bin"] {
        fs::create_dir(at(name)).expect("a folder");
    }
    strip_to(&at("built/gleaner"));
    let cargo = format!(
        "#!/bin/sh\nset -e\ncase $1 in metadata | -vV) exec {cargo} \"$@\" ;; esac\n\
         echo \"$*\" >{told}\nmkdir -p \"$CARGO_TARGET_DIR/dist\"\n\
         cp {built}/* \"$CARGO_TARGET_DIR/dist/\"\n",
        cargo = env!("CARGO"),
        told = at("told").display(),
        built = at("built").display()
    );
    write_program(&at("bin/cargo"), &cargo);
    let mut build = Command::new(Path::new(ROOT).join("packaging/build"));
    // Of its programs only these come before those of the distribution.
    build.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", at("bin").display()));
    build.env("CARGO_TARGET_DIR", at("target")).env("DPKG_DEB_COMPRESSOR_TYPE", "none");
    let made = done(build.env("GZIP", "-1").arg("--out").arg(at("out")));
    let tarball = made.lines().find(|line| line.ends_with("-linux.tar.gz")).expect("it says");
    let listed = done(Command::new("tar").args(["-tzf", tarball]));
    for program in ["/bin/gleaner", "/bin/gleaner-hook"] {
        assert!(listed.lines().any(|line| line.ends_with(program)), "{program}: {listed}");
    }

    // What it asks for there is.
    let told = text(&at("told"));
    assert_eq!(told, "build --profile dist --locked --bins\n");
    let recommended = |made: &str| {
        let deb = made.lines().find(|line| line.ends_with(".deb"))?;
        Some(done(Command::new("dpkg-deb").args(["--field", deb, "Recommends"])))
    };
    assert!(recommended(&made).is_none_or(|names| names.trim().is_empty()));
    // With GPUs, which a driver for them has to be found for.
    let made = done(build.arg("--gpu"));
    assert_eq!(text(&at("told")), "build --profile dist --locked --bins --features gpu\n");
    assert!(recommended(&made).is_none_or(|names| names.trim() == "libvulkan1"));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["clean", "--dry-run", "--locked", "--profile", "dist"]).current_dir(ROOT);
    done(cargo.arg("--target-dir").arg(at("target")));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--locked", "--offline", "--depth", "1", "--features", "gpu"]);
    done(cargo.current_dir(ROOT));
}

#[test]
fn what_the_builder_does_not_know_it_says() {
    let _turn = Turn::shared();
    for arguments in [&["--fast"][..], &["--out"], &["--speed", "9"]] {
        let mut build = Command::new(Path::new(ROOT).join("packaging/build"));
        run(build.args(arguments)).refused(2, &[arguments[0]]);
    }
    let mut build = Command::new(Path::new(ROOT).join("packaging/build"));
    run(build.args(["--program", "/bin/true", "--gpu"]))
        .refused(2, &["--gpu is for what is built"]);
    // Half of an installation is none.
    let mut build = Command::new(Path::new(ROOT).join("packaging/build"));
    run(build.args(["--program", "/bin/true"])).refused(2, &["/bin/true-hook"]);
}
