//! The policies of the family, and what they run on.

use gleaner_protocol::Span;
use gleaner_scheduling::Policy;
use gleaner_scheduling::baselines::{
    Eladur, EladurConfig, FcfsBackfill, FcfsBackfillConfig, GridEngine,
};
use gleaner_scheduling::deadline::{Gleaner, GleanerConfig};

use super::world::Cluster;
use crate::parameters::{Parameter, Settings};

/// In the order of the table.
pub(super) const POLICIES: &[&str] = &["grid-engine", "fcfs-backfill", "eladur", "gleaner"];

/// What both scenarios can set.
pub(super) fn parameters() -> Vec<Parameter> {
    let setup = "J. Delgado 2012, Section V.4.3: six machines with one virtual host, one with two, one with four";
    vec![
        Parameter::count(
            "hosts",
            8,
            (1, 1000),
            "single-core machines",
            "J. Delgado 2012, Section V.4.3 (6 + 1 + 1 machines)",
        ),
        Parameter::count(
            "double_hosts",
            1,
            (0, 1000),
            "machines that announce two slots to grid-engine",
            setup,
        ),
        Parameter::count(
            "quadruple_hosts",
            1,
            (0, 1000),
            "machines that announce four slots to grid-engine",
            setup,
        ),
        Parameter::number(
            "margin_percent",
            10.0,
            (0.0, 1000.0),
            "what fcfs-backfill and eladur add to predicted times",
            "J. Delgado 2012, Section V.4.2",
        ),
        Parameter::number(
            "gleaner_margin_percent",
            2.0,
            (0.0, 1000.0),
            "what gleaner adds to predicted times, as far as a job's time allows",
            "ours: data sets repeat their times within 2 % (J. Delgado 2012, Section III.5.2); who takes longer is served after those who do not",
        ),
        Parameter::number(
            "monitor_s",
            60.0,
            (1.0, 3600.0),
            "how far apart the steps of eladur's monitor are",
            "J. Delgado 2012, Section V.2.2",
        ),
        Parameter::number(
            "turn_s",
            1.0,
            (0.1, 3600.0),
            "how much less laxity a waiting task has, at least, than a running one before gleaner gives it the core",
            "ours: short beside what deadlines leave; longer ones lose the tightest sets of jobs",
        ),
        Parameter::number(
            "deploy_s",
            40.0,
            (0.0, 3600.0),
            "time until a virtual host is up for a task of fcfs-backfill; eladur keeps a pool of them and grid-engine's stand for good",
            "calibrated: the published 131 min need 36 s to 65 s, for ElaDUR's 130 min are the last arrival and one task; the published expansion factor of 1.1 would rather have none (it becomes 1.2)",
        ),
        Parameter::number(
            "checkpoint_s",
            0.001,
            (0.001, 3600.0),
            "work that an interrupted task repeats at most",
            "virtual hosts are moved with what runs on them (J. Delgado 2012, Section V.1)",
        ),
        Parameter::number(
            "resume_s",
            0.0,
            (0.0, 3600.0),
            "what a task needs beside its work each time that it goes on after it was taken from its host",
            "virtual hosts run on while they are moved; what begins anew as a process needs it",
        ),
    ]
}

fn seconds(settings: &Settings, name: &str) -> Span {
    Span::from_micros((settings.number(name) * 1e6) as u64)
}

fn permille(settings: &Settings, name: &str) -> u32 {
    // The range of the parameter keeps it far below the type's end.
    (settings.number(name) * 10.0) as u32
}

/// A fresh policy of this name with the settings' values.
pub(super) fn policy(name: &str, settings: &Settings) -> Box<dyn Policy> {
    let margin_permille = permille(settings, "margin_percent");
    match name {
        "grid-engine" => Box::new(GridEngine::default()),
        "fcfs-backfill" => Box::new(FcfsBackfill::new(FcfsBackfillConfig { margin_permille })),
        "eladur" => {
            let monitor = seconds(settings, "monitor_s");
            Box::new(Eladur::new(EladurConfig { margin_permille, monitor }))
        }
        _ => {
            let margin_permille = permille(settings, "gleaner_margin_percent");
            let turn = seconds(settings, "turn_s");
            Box::new(Gleaner::new(GleanerConfig { margin_permille, turn, corrects: true }))
        }
    }
}

/// The machines as a policy finds them.
///
/// # Errors
/// More of them have several slots than there are.
pub(super) fn cluster(name: &str, settings: &Settings) -> Result<Cluster, String> {
    let count = |name: &str| usize::try_from(settings.count(name)).expect("at most 1000");
    let hosts = count("hosts");
    let several = count("double_hosts") + count("quadruple_hosts");
    if several > hosts {
        return Err(format!(
            "double_hosts and quadruple_hosts add up to {several}, more than hosts, which is \
             {hosts}: set them to {hosts} together or less"
        ));
    }
    let mut slots = vec![1; hosts];
    if name == "grid-engine" {
        let (doubles, quadruples) = (count("double_hosts"), count("quadruple_hosts"));
        slots[hosts - doubles - quadruples..hosts - quadruples].fill(2);
        slots[hosts - quadruples..].fill(4);
    }
    let deploys = name == "fcfs-backfill";
    Ok(Cluster {
        slots,
        deploy: if deploys { seconds(settings, "deploy_s") } else { Span::ZERO },
        checkpoint: Some(seconds(settings, "checkpoint_s")),
        resume: seconds(settings, "resume_s"),
        taken: Vec::new(),
        is_checked: cfg!(debug_assertions),
    })
}
