//! Qube!: its workers, and the instances that run on each.
//!
//! What `qbhosts --xml` prints is documented nowhere, so this asks Qube's own Python module, `qb`, by a
//! script (`qube.py`): `qb.hostinfo(subjobs=True)`, and of each `qb.Host` the `name`, `state` and
//! `subjobs`, of each `qb.Subjob` the `pid` (its job) and `id` ("Python API Reference" of
//! `PipelineFX`'s documentation). How many processors an instance reserves is not among them, so it
//! books its worker's whole host. A worker that is not `active` may have fallen silent over a render:
//! its host is wholly booked. No worker at all is no answer, for it is not said what the module gives
//! where its supervisor is down.

use gleaner_protocol::booking_of;
use serde::Deserialize;
use serde_json::Value;

use super::inventory::{Amount, Inventory};
use super::question::Question;
use super::sieve::{ALL, read};
use crate::FarmAnswer;

pub(super) const NAME: &str = "qube";
const SCRIPT: &str = include_str!("qube.py");

pub(super) fn questions() -> Vec<Question> {
    vec![Question::python("qube.py", SCRIPT)]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Worker {
    name: String,
    state: String,
    /// Job and instance.
    instances: Vec<(u64, u64)>,
}

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<FarmAnswer, String> {
    let [answer] = answers else { return Err("one answer is expected".into()) };
    let mut farm = Inventory::of(NAME);
    let said: Vec<Value> = read("its module", answer, ALL, &mut farm)?;
    let is_empty = said.is_empty();
    let workers: Vec<Worker> = farm.understood(said, "name");
    if is_empty {
        return Err("it has no workers: does its supervisor run?".into());
    }
    for Worker { name, state, instances } in &workers {
        farm.host(name, Amount::default());
        for (job, instance) in instances {
            let booking = booking_of(NAME, &format!("{job}.{instance}"));
            farm.books(name, booking, Amount::default());
        }
        if state != "active" {
            farm.withholds(name, booking_of(NAME, &format!("worker-{state}")), Amount::default());
        }
    }
    farm.finish()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;
    use crate::sources::inventory::seen;

    /// As its documentation has the module, which cannot be had: hosts and subjobs are dictionaries,
    /// and numbers may be words.
    const MODULE: &str = r#"
class Host(dict): pass
class Subjob(dict): pass

def hostinfo(fields=[], filters={}, name=None, state=None, subjobs=False):
    assert subjobs, "without it there are none"
    ran = [Subjob(pid=812, id=0, status="running"), Subjob(pid="812", id="3", status="running")]
    return [
        Host(name="r1", state="active", resources="host.processors=2/8", subjobs=ran),
        Host(name="r2", state="active", resources="host.processors=0/8", subjobs=[]),
        Host(name="r3", state="down", resources="", subjobs=None),
    ]
"#;

    fn question() -> Command {
        let [Question::Program { argv, .. }] = &questions()[..] else { panic!("one program") };
        let mut program = Command::new(argv[0]);
        program.args(&argv[1..]);
        program
    }

    fn ask(module: &str) -> (Vec<u8>, bool) {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("api/python");
        fs::create_dir_all(&place).expect("made");
        fs::write(place.join("qb.py"), module).expect("written");
        let said = question().env("QBDIR", folder.path()).output().expect("python3 runs");
        (said.stdout, said.status.success())
    }

    #[test]
    fn nothing_of_where_the_monitor_was_started_is_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let below = folder.path().join("api/python");
        fs::create_dir_all(&below).expect("made");
        for place in ["json.py", "os.py", "qb.py", "api/python/qb.py"] {
            fs::write(folder.path().join(place), "print('planted')").expect("written");
        }
        // An empty QBDIR is none.
        for root in ["", "/nowhere"] {
            let mut asked = question();
            asked.current_dir(folder.path()).env("QBDIR", root).env("PYTHONPATH", &below);
            let said = asked.output().expect("python3 runs");
            assert!(!String::from_utf8_lossy(&said.stdout).contains("planted"), "{root:?}");
        }
    }

    #[test]
    fn an_instance_books_its_workers_host() {
        let (answer, is_good) = ask(MODULE);
        assert!(is_good);
        assert_eq!(
            seen(parse(&[answer])),
            [
                "r1 ?c ?m: qube:812.0 all ?m, qube:812.3 all ?m",
                "r2 ?c ?m:",
                "r3 ?c ?m: qube:worker-down all ?m withheld",
            ]
        );
    }

    #[test]
    fn what_is_no_answer_is_none() {
        let without_subjobs = MODULE.replace(", subjobs=[])", ")");
        let without_hosts = "def hostinfo(subjobs): return []";
        let none = "def hostinfo(subjobs): return None";
        for module in [&without_subjobs, without_hosts, none, "no python"] {
            let (answer, is_good) = ask(module);
            assert!(!is_good || parse(&[answer]).is_err(), "{module}");
        }
        let (answer, _) = ask(&format!("print('hello')\n{MODULE}"));
        let answer = parse(&[answer]).expect("it is said beside the answer");
        assert_eq!(answer.notes, [r#"its module says beside its answer: "hello""#]);
    }
}
