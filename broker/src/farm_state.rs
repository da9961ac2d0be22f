//! What hosts do, and all of them together, in the words of the pages and of the farm's history.

use gleaner_protocol::Origin;
use gleaner_protocol::api::{FarmNow, HostState};
use gleaner_scheduling::{Core, Host};

/// What a monitor says of a host that it closes, and what that is. Monitors of other releases may say
/// it otherwise: then it is withheld, and the reason is told as it was said.
const SAID: [(&str, HostState); 6] = [
    ("harvest was stopped", HostState::Stopped),
    ("held out", HostState::HeldOut),
    ("quiet period", HostState::Quiet),
    ("has booked", HostState::Rendering),
    ("every core is booked", HostState::Rendering),
    ("all memory is booked", HostState::Rendering),
];

/// What a host does.
pub(crate) fn host_state(host: &Host) -> HostState {
    let cores = host.fragment.cores;
    match host.closed.as_deref().filter(|_| cores == 0) {
        _ if !host.connected => HostState::Lost,
        _ if host.alarm.is_some() => HostState::Alarm,
        _ if !host.leases.is_empty() => HostState::Harvested,
        _ if cores > 0 => HostState::Idle,
        Some(why) => {
            let said = SAID.iter().find(|(words, _)| why.contains(words));
            said.map_or(HostState::Withheld, |(_, state)| *state)
        }
        None if host.info.origin == Origin::Desktop => HostState::GivenWay,
        None => HostState::Withheld,
    }
}

/// What the farm does now.
pub(crate) fn farm_now(core: &Core) -> FarmNow {
    let farm = core.farm();
    let (given, held) = farm.lane_shares();
    let mut now = FarmNow::default();
    for (_, host) in farm.hosts() {
        now.known += 1;
        if !host.connected {
            continue;
        }
        now.hosts += 1;
        now.cores += f64::from(host.info.cores);
        let kept = f64::from(host.info.cores.saturating_sub(host.fragment.cores));
        let renders = matches!(
            host_state(host),
            HostState::Harvested | HostState::Idle | HostState::Rendering
        );
        if renders && host.info.origin == Origin::Farm {
            now.rendered += kept;
        } else {
            now.closed += kept;
        }
    }
    now.harvested = held.iter().sum::<u64>() as f64 / 1e3;
    now.idle = (given as f64 / 1e3 - now.harvested).max(0.0);
    now
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::control::Fragment;
    use gleaner_protocol::{Capabilities, HostInfo, HostName, Time};
    use gleaner_scheduling::{CoreConfig, Input, PolicyName};

    use super::*;

    fn core_with(hosts: &[(&str, Origin, u32)]) -> Core {
        let mut core = Core::new(&CoreConfig::background(PolicyName::Plain));
        for (name, origin, cores) in hosts {
            let info = HostInfo {
                name: HostName::new(*name).expect("a plain name"),
                origin: *origin,
                owner: None,
                cores: 8,
                memory_mib: 0,
                kind: None,
                chunk_cache_mib: 0,
                capabilities: Capabilities::default(),
            };
            let fragment = Fragment { cores: *cores, ..Fragment::default() };
            let joined = Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 };
            core.handle(Time::ZERO, joined, &mut Vec::new());
        }
        core
    }

    fn state(core: &Core, name: &str) -> HostState {
        host_state(core.farm().host_named(&HostName::new(name).expect("plain")).expect("known"))
    }

    #[test]
    fn a_closed_host_is_what_its_monitor_says() {
        let mut core = core_with(&[("a", Origin::Farm, 0), ("b", Origin::Desktop, 0)]);
        assert_eq!(state(&core, "a"), HostState::Withheld);
        assert_eq!(state(&core, "b"), HostState::GivenWay);
        let name = HostName::new("a").expect("plain");
        for (said, is) in [
            ("the quiet period is not over", HostState::Quiet),
            ("render-7 has booked the whole host", HostState::Rendering),
            ("every core is booked or reserved", HostState::Rendering),
            (
                "the farm's harvest was stopped by anna at noon: the quiet period",
                HostState::Stopped,
            ),
            ("held out on 2026-11-28, for comparison", HostState::HeldOut),
            ("nobody has heard of it for a minute", HostState::Withheld),
        ] {
            core.note_closed(&name, Some(said));
            assert_eq!(state(&core, "a"), is, "{said}");
        }
    }

    #[test]
    fn what_renders_leave_is_idle_and_the_rest_is_theirs_or_closed() {
        let core =
            core_with(&[("a", Origin::Farm, 6), ("b", Origin::Farm, 0), ("c", Origin::Desktop, 7)]);
        let now = farm_now(&core);
        assert_eq!((now.known, now.hosts, now.cores), (3, 3, 24.0));
        assert_eq!((now.rendered, now.harvested, now.idle, now.closed), (2.0, 0.0, 13.0, 9.0));
    }
}
