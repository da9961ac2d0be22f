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
use super::sieve::quote;
use crate::FarmAnswer;

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

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<FarmAnswer, String> {
    let [hosts, queues] = answers else { return Err("two answers are expected".into()) };
    let mut farm = Inventory::of(NAME);
    read(hosts, "qhost", &mut farm, |farm, root| {
        elements(root, "host").for_each(|host| add_host(farm, host));
    })?;
    let mut in_use: BTreeMap<String, Queues> = BTreeMap::new();
    read(queues, "qstat", &mut farm, |farm, root| {
        elements(root, "Queue-List").for_each(|queue| add_queue(farm, &mut in_use, queue));
    })?;
    for (host, queues) in &in_use {
        farm.books_rest(host, booking_of(NAME, "unnamed"), queues.used);
        let kept = queues.used.saturating_add(queues.reserved);
        farm.withholds_rest(host, booking_of(NAME, "reserved"), kept);
        if !queues.any_is_well {
            farm.withholds(host, booking_of(NAME, "every-queue-is-out"), Amount::default());
        }
    }
    farm.finish()
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

/// Reads what a program prints as XML, names of jobs and users as they are included.
fn read(
    answer: &[u8],
    program: &str,
    farm: &mut Inventory,
    take: impl FnOnce(&mut Inventory, Node),
) -> Result<(), String> {
    let text = String::from_utf8_lossy(answer);
    let begin = text.lines().map(str::trim_start).find(|line| line.starts_with('<'));
    let Some(begin) = begin.map(|line| line.as_ptr() as usize - text.as_ptr() as usize) else {
        return Err(format!("{program}: it has no XML: it says {}", quote(&text)));
    };
    let (before, xml) = text.split_at(begin);
    if !before.trim().is_empty() {
        farm.note(format!("{program} says beside its answer: {}", quote(before)));
    }
    let xml = clean(xml);
    let document = Document::parse(&xml)
        .map_err(|error| format!("{program}: {error}: it says {}", quote(&xml)))?;
    take(farm, document.root_element());
    Ok(())
}

/// Without characters that XML cannot have, and with each `&` that names none as a plain one.
fn clean(xml: &str) -> String {
    let is_plain = |c: &char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    let mut clean = String::with_capacity(xml.len());
    for (at, c) in
        xml.char_indices().filter(|(_, c)| is_plain(c) && *c != '\u{fffe}' && *c != '\u{ffff}')
    {
        clean.push(c);
        let names_one = || {
            let name = xml[at + 1..].split(';').next().unwrap_or_default();
            let is_known = matches!(name, "amp" | "lt" | "gt" | "quot" | "apos");
            is_known && xml[at + 1 + name.len()..].starts_with(';')
                || name.starts_with('#') && name.len() < 9
        };
        if c == '&' && !names_one() {
            clean.push_str("amp;");
        }
    }
    clean
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

fn add_host(farm: &mut Inventory, host: Node) {
    let Some(name) = host.attribute("name") else {
        return farm.unclear("a host of qhost", "it has no name");
    };
    // What stands for all of them.
    if name == "global" {
        return;
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
    farm.host(name, size);
}

fn add_queue(farm: &mut Inventory, in_use: &mut BTreeMap<String, Queues>, queue: Node) {
    let name = text(queue, "name").unwrap_or_default();
    let Some((_, host)) = name.split_once('@') else {
        return farm.unclear(&format!("queue {name:?}"), "it has no host");
    };
    farm.host(host, Amount::default());
    for job in elements(queue, "job_list") {
        let Some(number) = text(job, "JB_job_number") else {
            farm.misses(host, format!("a job in queue {name} has no number"));
            continue;
        };
        let task = text(job, "tasks").unwrap_or("0");
        let slots = text(job, "slots").and_then(|slots| slots.parse().ok());
        let amount = Amount { cores: slots, ..Amount::default() };
        farm.books(host, booking_of(NAME, &format!("{number}.{task}")), amount);
    }
    let used = text(queue, "slots_used").unwrap_or("0");
    let used: u64 = used.parse().unwrap_or_else(|_| {
        farm.misses(host, format!("slots_used of queue {name} is {used:?}"));
        0
    });
    let reserved: u64 = text(queue, "slots_resv").and_then(|slots| slots.parse().ok()).unwrap_or(0);
    let of_host = in_use.entry(host.to_owned()).or_default();
    of_host.used = of_host.used.saturating_add(used);
    of_host.reserved = of_host.reserved.saturating_add(reserved);
    of_host.any_is_well |= !text(queue, "state").unwrap_or_default().contains(OUT);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::inventory::seen;

    const HOSTS: &str = include_str!("../../tests/answers/qhost-8.1.xml");
    const QUEUES: &str = include_str!("../../tests/answers/qstat-8.1.xml");

    fn farm(hosts: &str, queues: &str) -> Result<FarmAnswer, String> {
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
    fn a_jobs_name_that_is_no_xml_costs_nobody_anything() {
        for name in ["a\u{1b}[1mb\u{1}", "a & b", "a&b;c", "R&D &amp; &lt;x&gt; &#65;"] {
            let job = format!(
                "<job_list><JB_job_number>7</JB_job_number><JB_name>{name}</JB_name><slots>4</slots></job_list>"
            );
            let queues = format!("error: a warning\n<q>{}</q>", queue("a@h", &job));
            let answer = farm("<qhost/>", &queues).expect(name);
            assert_eq!(answer.notes, [r#"qstat says beside its answer: "error: a warning""#]);
            assert_eq!(seen(Ok(answer)), ["h ?c ?m: grid-engine:7.0 4c ?m"]);
        }
    }

    #[test]
    fn what_is_not_understood_costs_its_own_host_alone() {
        let queues = format!(
            "<q><Queue-List><name>a</name></Queue-List>{}{}{}</q>",
            queue("a@h1", "<job_list/>"),
            queue("a@h2", "").replace("<slots_used>0", "<slots_used>many"),
            queue("a@h3", "")
        );
        let answer = farm("<q><host name='a b'/><host/></q>", &queues).expect("most of it");
        assert_eq!(answer.unclear, ["a b", "a host of qhost", "queue \"a\""]);
        assert_eq!(answer.not_understood, 5);
        assert_eq!(
            seen(Ok(answer)),
            [
                "h1 ?c ?m: grid-engine:not-understood all ?m withheld",
                "h2 ?c ?m: grid-engine:not-understood all ?m withheld",
                "h3 ?c ?m:",
            ]
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_as_a_whole() {
        for (hosts, queues, expected) in [
            ("", "<q/>", "qhost: it has no XML"),
            (
                "<q/>",
                "error: commlib error",
                r#"qstat: it has no XML: it says "error: commlib error""#,
            ),
            ("<q/>", "<q><Queue-List>", "qstat: "),
            ("<q><host name='a b'/></q>", "<q/>", "a b"),
        ] {
            let error = farm(hosts, queues).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }
}
