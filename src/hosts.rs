//! `gleaner hosts`.

use std::process::ExitCode;

use gleaner_protocol::GpuInfo;
use gleaner_protocol::api::{BackingOff, HostStatus, Me, QuotaStatus, UsageRow, VoiceStatus};

use crate::client::{Format, Options};
use crate::failure::Failure;
use crate::{process, show};

/// Lists the hosts that the broker knows.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only hosts of the owner whose key you have joined with.
    #[arg(long)]
    mine: bool,
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let client = args.options.client()?;
        let mut hosts = client.hosts().await?;
        if args.mine {
            let me: Me = client.get("/v1/me").await?;
            let nobody = || "--mine: who shows no key of their own has no hosts (`gleaner join`)";
            let owner = me.owner.ok_or_else(|| Failure::Usage(nobody().into()))?;
            hosts.retain(|host| host.owner.as_ref() == Some(&owner));
        }
        match args.options.format() {
            Format::Json => show::json(&hosts),
            Format::Table => {
                print(&hosts);
                if args.mine {
                    let done: Vec<UsageRow> = client.get("/v1/usage?by=host&mine=true").await?;
                    print_done(&done);
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn print(hosts: &[HostStatus]) {
    let header = [
        "host",
        "origin",
        "owner",
        "kind",
        "connected",
        "cores",
        "given",
        "MiB given",
        "running",
        "counted",
        "disagreed",
        "trust",
        "gave back",
        "gpu",
        "alarm, why closed, or what it backs off from",
    ];
    let rows = hosts.iter().map(|host| {
        [
            show::name(host.host.as_str()),
            host.origin.to_string(),
            host.owner.as_ref().map(|owner| show::name(owner.as_str())).unwrap_or_default(),
            host.kind.as_ref().map(|kind| show::name(kind.as_str())).unwrap_or_default(),
            if host.connected { "yes" } else { "no" }.to_owned(),
            host.cores.to_string(),
            host.cores_given.to_string(),
            host.memory_mib_given.map(|mib| mib.to_string()).unwrap_or_default(),
            host.running.to_string(),
            host.reported.to_string(),
            host.disagreed.to_string(),
            match host.voice {
                Some(VoiceStatus::Trusted) => "trusted".to_owned(),
                Some(VoiceStatus::Earned) => "earned".to_owned(),
                Some(VoiceStatus::New { agreed }) => format!("new ({agreed})"),
                None => String::new(),
            },
            host.released.to_string(),
            gpu(host),
            trouble(host),
        ]
    });
    show::table(header, rows.collect());
}

/// Its GPU, and whether it is given now.
fn gpu(host: &HostStatus) -> String {
    let gives = host.gpus_given > 0 || !host.connected;
    let of = |gpu: &GpuInfo| if gives { gpu.to_string() } else { format!("{gpu}, not given now") };
    host.gpu.as_ref().map(of).unwrap_or_default()
}

/// What hosts have done, for whomever.
fn print_done(rows: &[UsageRow]) {
    let hours = |seconds: f64| format!("{:.3}", seconds / 3_600.0);
    let cells = rows.iter().map(|row| {
        let host = row.host.as_ref().map(|host| show::name(host.as_str())).unwrap_or_default();
        let (replicas, accepted) = (row.replicas.to_string(), row.accepted.to_string());
        [host, replicas, accepted, hours(row.cpu_s), hours(row.credit_s)]
    });
    show::table(["host", "replicas", "accepted", "CPU hours", "credit hours"], cells.collect());
}

/// What is the matter with a host, if anything.
fn trouble(host: &HostStatus) -> String {
    let backs_off = host.backing_off.iter().map(|of| {
        let BackingOff { what, in_a_row, for_s, reason } = of;
        format!("gets none of {what} for {for_s} s, after {in_a_row} failures: {reason}")
    });
    let quota = host.quota.map(|QuotaStatus { allowed, given, for_s }| {
        format!("has erred: {given} of {allowed} replicas an hour given, the next hour begins in {for_s} s")
    });
    let told = host.alarm.iter().chain(&host.closed).cloned().chain(quota).chain(backs_off);
    told.collect::<Vec<_>>().join("; ")
}
