//! Grid Engine: hosts by `qhost`, queues and what runs in them by `qstat`.
//!
//! With `-g t` a parallel job comes once for each of its slots, in the queue where that slot is. A
//! slot is a core. A host whose every queue is disabled, suspended, in error or unreachable is
//! wholly booked; the load alarm (`a`) does not count, since our own load may be its cause.

use std::collections::BTreeMap;

use gleaner_protocol::{booking_of, mib_of};
use roxmltree::{Document, Node};

use super::inventory::{Amount, Inventory};
use super::question::Question;
use crate::HostAllocation;

pub(super) const NAME: &str = "grid-engine";
/// Letters of queue states in which a queue takes no jobs for a reason of its own: disabled,
/// suspended (by hand, by another queue, by the calendar), unknown, error, ambiguous, orphaned.
const OUT: [char; 9] = ['d', 's', 'S', 'C', 'D', 'u', 'E', 'c', 'o'];

pub(super) fn questions() -> Vec<Question> {
    vec![
        Question::program(["qhost", "-xml"]),
        Question::program(["qstat", "-f", "-u", "*", "-g", "t", "-xml"]),
    ]
}

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<Vec<HostAllocation>, String> {
    let [hosts, queues] = answers else { return Err("two answers are expected".into()) };
    let mut farm = Inventory::default();
    read(hosts, "qhost", |root| {
        elements(root, "host").try_for_each(|host| add_host(&mut farm, host))
    })?;
    let mut in_use: BTreeMap<String, Queues> = BTreeMap::new();
    read(queues, "qstat", |root| {
        elements(root, "Queue-List").try_for_each(|queue| add_queue(&mut farm, &mut in_use, queue))
    })?;
    for (host, queues) in &in_use {
        farm.books_rest(host, booking_of(NAME, "unnamed"), queues.used)?;
        let kept = queues.used.saturating_add(queues.reserved);
        farm.withholds_rest(host, booking_of(NAME, "reserved"), kept)?;
        if !queues.any_is_well {
            farm.withholds(host, booking_of(NAME, "every-queue-is-out"), Amount::default())?;
        }
    }
    Ok(farm.finish())
}

/// What all queues of a host say together.
#[derive(Default)]
struct Queues {
    /// Slots in use.
    used: u64,
    /// Slots that are kept for those who have reserved them.
    reserved: u64,
    any_is_well: bool,
}

fn read(
    answer: &[u8],
    program: &str,
    take: impl FnOnce(Node) -> Result<(), String>,
) -> Result<(), String> {
    let text = std::str::from_utf8(answer).map_err(|error| format!("{program}: {error}"))?;
    let document = Document::parse(text).map_err(|error| format!("{program}: {error}"))?;
    take(document.root_element()).map_err(|why| format!("{program}: {why}"))
}

fn elements<'a, 'input>(
    root: Node<'a, 'input>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'input>> {
    root.descendants().filter(move |node| node.has_tag_name(name))
}

fn text<'a>(of: Node<'a, '_>, name: &'static str) -> Option<&'a str> {
    of.children().find(|node| node.has_tag_name(name))?.text().map(str::trim)
}

fn add_host(farm: &mut Inventory, host: Node) -> Result<(), String> {
    let name = host.attribute("name").ok_or("a host has no name")?;
    // What stands for all of them.
    if name == "global" {
        return Ok(());
    }
    let value = |name: &str| {
        let mut values = elements(host, "hostvalue");
        values.find(|value| value.attribute("name") == Some(name))?.text()
    };
    // A host that does not answer has a dash in each place.
    let size = Amount {
        cores: value("num_proc").and_then(|text| text.parse().ok()),
        memory_mib: value("mem_total").and_then(mib_of),
        gpus: None,
    };
    farm.host(name, size)
}

fn add_queue(
    farm: &mut Inventory,
    in_use: &mut BTreeMap<String, Queues>,
    queue: Node,
) -> Result<(), String> {
    let name = text(queue, "name").ok_or("a queue has no name")?;
    let (_, host) = name.split_once('@').ok_or_else(|| format!("queue {name:?} has no host"))?;
    farm.host(host, Amount::default())?;
    for job in elements(queue, "job_list") {
        let number = text(job, "JB_job_number")
            .ok_or_else(|| format!("a job in queue {name} has no number"))?;
        let task = text(job, "tasks").unwrap_or("0");
        let slots = text(job, "slots").and_then(|slots| slots.parse().ok());
        let amount = Amount { cores: slots, ..Amount::default() };
        farm.books(host, booking_of(NAME, &format!("{number}.{task}")), amount)?;
    }
    let used: u64 = match text(queue, "slots_used") {
        Some(used) => used.parse().map_err(|_| format!("slots_used of queue {name}: {used:?}"))?,
        None => 0,
    };
    let reserved: u64 = text(queue, "slots_resv").and_then(|slots| slots.parse().ok()).unwrap_or(0);
    let of_host = in_use.entry(host.to_owned()).or_default();
    of_host.used = of_host.used.saturating_add(used);
    of_host.reserved = of_host.reserved.saturating_add(reserved);
    of_host.any_is_well |= !text(queue, "state").unwrap_or_default().contains(OUT);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::inventory::seen;

    const HOSTS: &str = include_str!("../../tests/answers/qhost-8.1.xml");
    const QUEUES: &str = include_str!("../../tests/answers/qstat-8.1.xml");

    fn farm(hosts: &str, queues: &str) -> Result<Vec<HostAllocation>, String> {
        parse(&[hosts.into(), queues.into()])
    }

    #[test]
    fn hosts_and_what_runs_in_their_queues() {
        assert_eq!(
            seen(farm(HOSTS, QUEUES)),
            ["localhost 2c 24064m: grid-engine:4.0 2c ?m, grid-engine:5.1 1c ?m, \
              grid-engine:5.2 1c ?m"]
        );
    }

    fn queue(name: &str, state: &str) -> String {
        format!(
            "<Queue-List><name>{name}</name><slots_used>0</slots_used>\
             <slots_resv>0</slots_resv>{state}</Queue-List>"
        )
    }

    #[test]
    fn a_host_is_out_where_all_of_its_queues_are() {
        for (one, other, is_out) in [
            ("", "", false),
            ("<state>a</state>", "", false),
            ("<state>d</state>", "", false),
            ("<state>d</state>", "<state>au</state>", true),
            ("<state>E</state>", "<state>S</state>", true),
        ] {
            let queues =
                format!("<job_info>{}{}</job_info>", queue("a@h", one), queue("b@h", other));
            let line = &seen(farm("<qhost/>", &queues))[0];
            assert_eq!(
                line.contains("every-queue-is-out all ?m withheld"),
                is_out,
                "{one} {other}: {line}"
            );
        }
    }

    #[test]
    fn slots_in_use_that_no_job_names_are_booked_and_reserved_ones_withheld() {
        let queues = queue("a@h", "").replace("<slots_resv>0", "<slots_resv>3");
        let line = &seen(farm("<qhost/>", &format!("<q>{queues}</q>")))[0];
        assert_eq!(line, "h ?c ?m: grid-engine:reserved 3c ?m withheld");
        let both = queues.replace("<slots_used>0", "<slots_used>2");
        let line = &seen(farm("<qhost/>", &format!("<q>{both}</q>")))[0];
        assert_eq!(line, "h ?c ?m: grid-engine:unnamed 2c ?m, grid-engine:reserved 3c ?m withheld");
        // A job that one queue names leaves what another has in use as it is.
        let job = "<job_list><JB_job_number>7</JB_job_number><slots>4</slots></job_list>";
        let named = queue("b@h", job).replace("<slots_used>0", "<slots_used>4");
        let line = &seen(farm("<qhost/>", &format!("<q>{queues}{named}</q>")))[0];
        assert_eq!(line, "h ?c ?m: grid-engine:7.0 4c ?m, grid-engine:reserved 3c ?m withheld");
    }

    #[test]
    fn what_makes_no_sense_is_refused_as_a_whole() {
        for (hosts, queues, expected) in [
            ("", "<q/>", "qhost: "),
            ("<q/>", "error: commlib error", "qstat: "),
            ("<q/>", "<q><Queue-List><name>a</name></Queue-List></q>", "queue \"a\" has no host"),
            ("<q><host name='a b'/></q>", "<q/>", "a b"),
            (
                "<q/>",
                "<q><Queue-List><name>a@h</name><job_list/></Queue-List></q>",
                "a job in queue a@h has no number",
            ),
        ] {
            let error = farm(hosts, queues).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }
}
