//! What is built wrong around the core is found out.

use gleaner_agent::harvest::Harvest;
use gleaner_monitor::Monitor;
use gleaner_protocol::Span;
use gleaner_scheduling::PolicyName;
use gleaner_simulator::{Breach, Bug, StormConfig, storm};

use super::builders::small;

/// The breach that this bug leads to, and the words that tell of it.
fn breach(bug: Bug) -> (Breach, String) {
    let base = StormConfig { bug: Some(bug), ..small(PolicyName::FragmentAware) };
    let config = match bug {
        Bug::LosesFrames => StormConfig { calm: Span::from_secs(900), ..base },
        Bug::NeverReports => StormConfig { calm: Span::from_secs(900), hosts: 4, ..base },
        Bug::KeepsReports => {
            StormConfig { lasts: Span::from_secs(3 * 3_600), fury: 1, hosts: 20, ..base }
        }
        Bug::LiarsCollude => StormConfig { lasts: Span::from_secs(7_200), hosts: 20, ..base },
        _ => base,
    };
    // Seed 0 finds nothing in the longest of these storms.
    for seed in 1..=20 {
        if let Err(failure) = storm(seed, &config) {
            let told = failure.to_string();
            return (failure.breach, told);
        }
    }
    panic!("nobody noticed that the storm was built with {bug:?}");
}

macro_rules! is_found_out {
    ($($story:ident: $bug:ident => $breach:pat),* $(,)?) => {$(
        #[test]
        fn $story() {
            let (breach, told) = breach(Bug::$bug);
            assert!(matches!(breach, $breach), "{told}");
        }
    )*};
}

is_found_out! {
    what_is_told_before_it_is_written_is_lost: TellsBeforeItIsWritten =>
        Breach::JobLost(_) | Breach::VoteLost(_) | Breach::DecisionChanged(_),
    what_is_never_synced_is_lost: NeverSyncs =>
        Breach::JobLost(_) | Breach::VoteLost(_) | Breach::DecisionChanged(_),
    a_decision_that_a_restart_forgets_changes: ForgetsDecisions => Breach::DecisionChanged(_),
    a_voter_that_a_restart_forgets_votes_twice: MixesUpVoters => Breach::SecondVote(..),
    a_broker_that_counts_anew_reuses_tokens: CountsFromTheBeginning => Breach::TokenReused(_),
    a_fragment_that_closes_unheard_is_overfull: OverhearsSmallerFragments =>
        Breach::OverFragment { .. },
    what_is_not_stopped_runs_astray: StopsNothing => Breach::Stray { .. },
    a_slot_without_a_gate_gets_in_the_way: IgnoresTheGate => Breach::InTheWay { .. },
    a_hook_that_trusts_the_agent_lets_a_render_wait: TrustsTheAgent => Breach::InTheWay { .. },
    work_that_is_never_reported_never_ends: NeverReports => Breach::Stuck { .. },
    liars_who_agree_win: LiarsCollude => Breach::WrongOutput(_),
    a_welcome_that_comes_twice_ends_the_link: WelcomesTwice => Breach::LinkRule { .. },
    records_that_are_read_short_restore_nothing: CutsRecordsShort => Breach::Restore(_),
    reports_that_are_kept_for_ever_pile_up: KeepsReports => Breach::Unbounded { .. },
    a_frame_that_is_not_stopped_runs_astray: DrawsOn => Breach::Stray { .. },
    a_frame_that_is_late_is_not_shown: SendsLateFrames => Breach::ShownLate { .. },
    frames_whose_viewer_has_gone_are_left: KeepsFrames => Breach::FrameLeft { .. },
    frames_that_are_written_down_are_found: WritesFrames => Breach::FrameWritten(_),
    a_viewer_who_is_not_told_sees_nothing: LosesFrames => Breach::Unseen { .. },
}

#[test]
fn an_agent_that_miscounts_is_found_out() {
    let config = StormConfig {
        agent_saboteur: Some(Harvest::miscount_reports),
        ..small(PolicyName::FragmentAware)
    };
    let failure = storm(1, &config).expect_err("an agent miscounts");
    assert!(matches!(failure.breach, Breach::Agent { .. }), "{failure}");
    assert!(failure.to_string().contains("unacked"), "{failure}");
}

#[test]
fn a_monitor_that_forgets_what_it_waits_for_is_found_out() {
    let config = StormConfig {
        monitor_saboteur: Some(Monitor::mislay_deadlines),
        ..small(PolicyName::FragmentAware)
    };
    let failure = storm(1, &config).expect_err("the monitor forgets");
    assert!(matches!(failure.breach, Breach::Monitor(_)), "{failure}");
    assert!(failure.to_string().contains("deadlines_are_indexed"), "{failure}");
}

#[test]
fn a_failure_says_how_to_replay_it() {
    let (_, told) = breach(Bug::CountsFromTheBeginning);
    let command = told.lines().nth(1).expect("a second line");
    assert!(command.starts_with("replay it: gleaner simulate storm --seeds "), "{told}");
    assert!(
        command.ends_with("--policy fragment-aware --hours 0.3333333333333333 --hosts 10 --fury 8"),
        "{told}"
    );
}
