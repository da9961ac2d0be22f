//! Whatever is heard in whatever order: what must hold holds.

use crate::farm::{CORES, Farm, QUIET_S, WHOLE, cores};
use gleaner_monitor::{FragmentView, Input};
use gleaner_protocol::farm::HookEvent;
use gleaner_protocol::{Epoch, Span, Time};
use proptest::prelude::{Strategy, prop, prop_assert, prop_oneof, proptest};

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    Preflight {
        render: u8,
        cores: Option<u32>,
    },
    Postflight {
        render: u8,
    },
    /// One of the hooks that ran is heard, perhaps again.
    Hear(usize),
    Sample,
    OldSample(usize),
    Poll {
        truthful: bool,
    },
    PollFails,
    NewLife,
    Nameless,
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4_u8, prop::option::of(0..8_u32))
            .prop_map(|(render, cores)| Step::Preflight { render, cores }),
        4 => (0..4_u8).prop_map(|render| Step::Postflight { render }),
        8 => (0..64_usize).prop_map(Step::Hear),
        4 => prop::strategy::Just(Step::Sample),
        2 => (0..64_usize).prop_map(Step::OldSample),
        3 => prop::bool::ANY.prop_map(|truthful| Step::Poll { truthful }),
        1 => prop::strategy::Just(Step::PollFails),
        1 => prop::strategy::Just(Step::NewLife),
        1 => prop::strategy::Just(Step::Nameless),
        6 => (1..90_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(400))]

    #[test]
    fn fragments_stay_within_what_is_left_and_grow_only_in_quiet(steps in steps()) {
        let mut farm = Farm::new();
        farm.starts_agent("a");
        let mut hooks: Vec<HookEvent> = Vec::new();
        let mut samples = vec![farm.sample("a")];
        let mut changed_at = farm.now;
        let mut lives = 1_000;
        for step in steps {
            let open_before = farm.open_now("a");
            let booked_before = farm.view("a").bookings;
            let begun = farm.now;
            match step.clone() {
                Step::Preflight { render, cores: n } => {
                    let booked = n.map_or(WHOLE, cores);
                    hooks.push(farm.preflight("a", &format!("r{render}"), booked));
                }
                Step::Postflight { render } => {
                    hooks.push(farm.postflight("a", &format!("r{render}")));
                }
                Step::Hear(which) if !hooks.is_empty() => {
                    let event = hooks[which % hooks.len()].clone();
                    farm.hears(&event);
                }
                Step::Hear(_) => {}
                Step::Sample => {
                    samples.push(farm.sample("a"));
                    farm.samples("a");
                }
                Step::OldSample(which) => {
                    let sample = samples[which % samples.len()].clone();
                    farm.input(Input::Sample(sample));
                }
                Step::Poll { truthful } => {
                    let bookings = farm.folder("a").bookings.clone();
                    let listed: Vec<(&str, u32)> = bookings
                        .iter()
                        .filter(|_| truthful)
                        .map(|(id, booked)| (id.as_str(), booked.cores.unwrap_or(CORES)))
                        .collect();
                    farm.polls(&[("a", &listed)]);
                }
                Step::PollFails => farm.poll_fails(),
                Step::NewLife => {
                    lives += 1;
                    let folder = farm.folder("a");
                    folder.epoch = Epoch { incarnation: lives, count: 0 };
                    folder.bookings.clear();
                }
                Step::Nameless => {
                    let mut event = farm.preflight("a", "nameless", cores(1));
                    event.epoch = Epoch::default();
                    farm.hears(&event);
                }
                Step::Pass(secs) => farm.advance(secs),
            }
            let view = farm.view("a");
            // The broker knows what the monitor believes, and it fits beside the bookings.
            match (&view.fragment, farm.open_now("a")) {
                (FragmentView::Open { cores, .. }, Some((told, _, epoch))) => {
                    prop_assert!(told == *cores);
                    prop_assert!(Some(epoch) == view.epoch);
                    let booked: u32 = view.bookings.iter().map(|b| b.cores.unwrap_or(CORES)).sum();
                    prop_assert!(told + booked <= CORES, "{told} beside {booked}");
                }
                (FragmentView::Closed { .. }, None) => {}
                other => prop_assert!(false, "{other:?}"),
            }
            // Nothing grows at once with news, nor before a quiet period without a new booking
            // or an end has passed.
            let before = open_before.map_or(0, |(cores, ..)| cores);
            let after = farm.open_now("a").map_or(0, |(cores, ..)| cores);
            if !matches!(step, Step::Pass(_)) {
                let names = |of: &[gleaner_monitor::BookingView]| -> Vec<_> {
                    of.iter().map(|b| b.booking.clone()).collect()
                };
                if names(&booked_before) != names(&view.bookings) {
                    changed_at = farm.now;
                }
            }
            if after > before {
                let quiet = farm.now.since(changed_at.max(Time::ZERO));
                prop_assert!(quiet >= Span::from_secs(QUIET_S), "grew after {quiet} by {step:?}");
                prop_assert!(begun >= changed_at);
            }
        }
    }
}
