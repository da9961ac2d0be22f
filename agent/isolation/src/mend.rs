//! The one command that lets this user have what a hierarchy did not grant.
//!
//! An enclosure has another name for each agent, so no command names one: what is given away is
//! the group that enclosures are made in.

use std::io;
use std::path::Path;

use crate::ability::Provider;
use crate::dir::GroupDir;
use crate::hierarchy::Hierarchy;

/// Of an enclosure that this user may not make in its own group.
pub(crate) fn of_refused_group(hierarchy: &Hierarchy, error: &io::Error) -> Option<String> {
    (error.kind() == io::ErrorKind::PermissionDenied).then(|| match hierarchy.provider {
        Provider::Cgroup2 => of_refused_passing_on(),
        Provider::Cgroup1 => group_of_the_users(hierarchy),
    })
}

/// Of a controller that this user may not pass on, or not while there are others in its group: an
/// agent in a group of its own, which it may divide.
pub(crate) fn of_refused_passing_on() -> String {
    let whose = if rustix::process::geteuid().is_root() { "" } else { " --user" };
    format!("systemd-run{whose} --scope -p Delegate=yes gleaner agent")
}

/// Of a controller that does not come down to `own`: by default users get some of them only.
/// None where it is not the manager of a user's services that was not given it.
pub(crate) fn of_missing_controller(own: &Path, controller: &str) -> Option<String> {
    let is_of_user = own.ancestors().filter_map(Path::file_name).any(|name| {
        name.to_str().is_some_and(|name| name.starts_with("user@") && name.ends_with(".service"))
    });
    let lists = own.ancestors().map(|path| GroupDir::at(path.to_owned()).read(LIST));
    // The root of the hierarchy has whatever the kernel has for it.
    let root = lists.map_while(Result::ok).last()?;
    let is_there = root.split_whitespace().any(|one| one == controller);
    (is_of_user && is_there).then(|| DELEGATE_TO_USERS.into())
}

/// Makes a group for this user in one of version 1, where systemd gives none away, and moves the
/// shell that it is typed into there.
fn group_of_the_users(hierarchy: &Hierarchy) -> String {
    let user = rustix::process::geteuid().as_raw();
    let own = hierarchy.own.display();
    let group = format!("{own}/gleaner.{user}");
    let fill = |file: &str| format!(" && cat {own}/{file} > {group}/{file}");
    // A group without cores or memory takes no process.
    let filled = match hierarchy.controllers.contains("cpuset") {
        true => fill("cpuset.cpus") + &fill("cpuset.mems"),
        false => String::new(),
    };
    format!(
        "sudo sh -c \"install -d -o {user} {group}{filled} && echo $$ > {group}/cgroup.procs\" \
         # then start the agent from this shell"
    )
}

/// Lists what a group gets.
const LIST: &str = "cgroup.controllers";

/// Has the system's manager give users all that we use.
const DELEGATE_TO_USERS: &str = "sudo sh -c 'mkdir -p /etc/systemd/system/user@.service.d && \
     printf \"[Service]\\nDelegate=cpu cpuset io memory pids\\n\" \
     > /etc/systemd/system/user@.service.d/gleaner.conf && systemctl daemon-reload' \
     # then log out of all sessions and in again";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_controller_that_users_do_not_get_is_given_to_them() {
        let base = tempfile::tempdir().expect("a folder");
        let root = base.path().join("cgroup");
        let make = |below: &str, list: &str| {
            let path = root.join(below);
            fs::create_dir_all(&path).expect("made");
            fs::write(path.join(LIST), list).expect("written");
            path
        };
        make("", "cpuset cpu io memory pids\n");
        make("user.slice", "cpu memory pids\n");
        make("user.slice/user@1000.service", "cpu memory pids\n");
        let own = make("user.slice/user@1000.service/run-1.scope", "cpu memory pids\n");
        for controller in ["cpuset", "io"] {
            let mend = of_missing_controller(&own, controller).expect("there is one");
            assert!(mend.contains("user@.service.d") && mend.contains("cpuset io"), "{mend}");
        }
        assert_eq!(of_missing_controller(&own, "rdma"), None, "not even the root has it");
        make("system.slice", "cpu\n");
        let service = make("system.slice/a.service", "cpu\n");
        assert_eq!(of_missing_controller(&service, "cpuset"), None, "no user's");
    }

    #[test]
    fn what_a_user_may_not_make_is_mended_where_agents_make_theirs() {
        let hierarchy = |provider, controller: &str| Hierarchy {
            provider,
            controllers: [controller.to_owned()].into(),
            own: "/cg/x".into(),
        };
        let (denied, full) = (io::ErrorKind::PermissionDenied, io::ErrorKind::StorageFull);
        let cpuset = hierarchy(Provider::Cgroup1, "cpuset");
        let mend = of_refused_group(&cpuset, &denied.into()).expect("there is one");
        let group = format!("/cg/x/gleaner.{}", rustix::process::geteuid().as_raw());
        assert!(mend.contains(&format!("cat /cg/x/cpuset.cpus > {group}/cpuset.cpus")), "{mend}");
        assert!(mend.contains(&format!("echo $$ > {group}/cgroup.procs")), "{mend}");
        let freezer = of_refused_group(&hierarchy(Provider::Cgroup1, "freezer"), &denied.into());
        assert!(freezer.is_some_and(|mend| !mend.contains("cpuset")));
        let unified = of_refused_group(&hierarchy(Provider::Cgroup2, ""), &denied.into());
        assert!(unified.is_some_and(|mend| mend.contains("Delegate=yes")));
        assert_eq!(of_refused_group(&cpuset, &full.into()), None);
    }
}
