//! A month of a large farm is replayed in seconds.

use std::fmt::Write as _;

use gleaner_simulator::{Order, Outcome, Quiet, Settings, Value, scenarios};

use crate::cpu_s;

const HOSTS: u64 = 500;
const CORES: u64 = 12;
const MONTH_S: u64 = 30 * 86_400;

fn replay(log: &str, set: &[(&'static str, Value)]) -> Outcome {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    std::io::Write::write_all(&mut file, log.as_bytes()).expect("written");
    let replay = scenarios().find(|scenario| scenario.name() == "replay").expect("it is there");
    let mut settings = Settings::defaults(&replay.parameters());
    settings.set("log", Value::File(file.path().to_str().expect("a plain path").into()));
    for (name, value) in set {
        settings.set(name, value.clone());
    }
    let order = Order { settings: &settings, seed: 1, policies: replay.policies(), measure: false };
    replay.run(&order, &Quiet).expect("a good log")
}

/// Renders of whole hosts, half an hour on average with as long a pause after each, as a
/// recording of the monitor.
fn month(hosts: u64, seed: u64) -> String {
    let mut random = seed;
    let mut pause_s = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Short ones often, long ones rarely.
        let share = (random >> 33) % 1000;
        1 + share * share * 5400 / 1_000_000
    };
    let mut changes = Vec::new();
    for host in 0..hosts {
        let (mut at, mut busy) = (pause_s(), 0);
        while at < MONTH_S {
            busy = CORES - busy;
            changes.push((at, host, busy));
            at += pause_s();
        }
    }
    changes.sort_unstable();
    let mut text = String::from(
        "{\"recording\":{\"version\":1,\"t_us\":0,\"boot\":\"x\",\"booted_s\":0,\"continued\":false,\"quiet_us\":60000000,\"reserve_cores\":0}}\n",
    );
    let mut line = |at: u64, host: u64, busy: u64| {
        writeln!(text, "{{\"host\":{{\"t_us\":{},\"host\":\"r{host}\",\"cores\":{CORES},\"busy\":{busy},\"seen\":true,\"disturbed\":true}}}}", at * 1_000_000).expect("a string takes every text");
    };
    (0..hosts).for_each(|host| line(0, host, 0));
    changes.into_iter().for_each(|(at, host, busy)| line(at, host, busy));
    text
}

#[test]
fn a_month_of_500_hosts_takes_at_most_ten_seconds() {
    let log = month(HOSTS, 1);
    let before = cpu_s();
    let outcome = replay(&log, &[]);
    let took_s = cpu_s() - before;
    let lines = log.lines().count();
    println!("{lines} lines in {took_s:.1} s under {} policies", outcome.policies.len());
    for (policy, numbers) in &outcome.policies {
        println!("{policy}: {numbers:?}");
    }
    assert!(took_s <= 10.0, "{took_s} s");
}

#[test]
fn a_part_of_a_farm_stands_for_all_of_it() {
    let log = month(60, 2);
    let all = replay(&log, &[("replicas_max", Value::Count(1_000_000_000))]);
    let part = replay(&log, &[("replicas_max", Value::Count(200_000))]);
    for ((policy, all), (_, part)) in all.policies.iter().zip(&part.policies) {
        assert!(all["sampled_percent"] == 100.0 && part["sampled_percent"] < 15.0);
        for metric in ["harvested_core_hours", "accepted_core_hours", "preemptions"] {
            let off = part[metric] / all[metric] - 1.0;
            println!("{policy}: {metric} {:.1} of a part, {:.1} of all", part[metric], all[metric]);
            assert!(off.abs() < 0.03, "{policy}: {metric} is {off} off");
        }
    }
}
