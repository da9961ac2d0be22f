//! `gleaner farm stop` and `gleaner farm resume`: the red button of a whole farm.

use std::process::ExitCode;

use anyhow::bail;
use gleaner_monitor::Stop;
use gleaner_protocol::api::{FarmStopStatus, StoppedFarm};
use serde::Deserialize;
use serde_json::{Value, json};

use super::monitor::Options;
use crate::client::Format;
use crate::{process, show};

#[derive(Debug, clap::Args)]
pub(super) struct StopArgs {
    /// Why, in a line, for everybody who wonders.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    orderer: Orderer,
}

#[derive(Debug, clap::Args)]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    orderer: Orderer,
}

/// Who orders something, of which monitor.
#[derive(Debug, clap::Args)]
struct Orderer {
    /// Who orders it [default: this user of this host].
    #[arg(long, value_name = "NAME", conflicts_with = "broker")]
    by: Option<String>,
    /// Orders it of this broker instead: for all its hosts, those of volunteers too, as the red button of
    /// its pages does. The broker knows who you are.
    #[arg(long, value_name = "URL")]
    broker: Option<String>,
    #[command(flatten)]
    options: Options,
}

impl Orderer {
    /// Gives the order; the monitor's answer.
    async fn order(&self, path: &str, order: &Value) -> anyhow::Result<Value> {
        Ok(self.options.client()?.post(path, order).await?)
    }

    fn name(&self) -> String {
        let given = self.by.clone();
        given.unwrap_or_else(|| {
            let variable = |name| std::env::var(name).ok().filter(|user| !user.is_empty());
            let user = variable("SUDO_USER").or_else(|| variable("USER"));
            let user =
                user.unwrap_or_else(|| format!("user {}", rustix::process::getuid().as_raw()));
            format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
        })
    }
}

#[derive(Debug, Deserialize)]
struct Stopped {
    stop: Stop,
    is_new: bool,
    is_kept: bool,
    trouble: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Resumed {
    lifted: Option<Stop>,
}

/// Orders something of a broker.
async fn order_of_broker(
    orderer: &Orderer,
    address: &str,
    path: &str,
    order: &Value,
) -> anyhow::Result<ExitCode> {
    let status: FarmStopStatus = orderer.options.broker(address)?.post(path, order).await?;
    match orderer.options.format() {
        Format::Json => show::json(&status),
        Format::Table => match (&status.stopped, &status.lifted) {
            (Some(stopped), _) => show::line(format_args!("STOPPED: {}", in_words(stopped))),
            (None, Some(lifted)) => {
                show::line(format_args!("harvested again; lifted: {}", in_words(lifted)));
            }
            (None, None) => show::line("no harvest was stopped at this broker"),
        },
    }
    match status.trouble {
        Some(trouble) => {
            bail!("that holds, but perhaps not over a restart of the broker: {trouble}")
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

/// As the broker says it of its hosts.
pub(super) fn in_words(StoppedFarm { by, at_ms, reason }: &StoppedFarm) -> String {
    format!(
        "the harvest of all hosts of this broker was stopped by {by} at {}: {reason}",
        show::time(*at_ms)
    )
}

pub(super) fn stop(args: StopArgs) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let StopArgs { reason, orderer } = args;
        if let Some(address) = &orderer.broker {
            let order = json!({"reason": reason});
            return order_of_broker(&orderer, address, "/v1/farm/stop", &order).await;
        }
        let order = json!({"by": orderer.name(), "reason": reason});
        let answer = orderer.order("/v1/farm/stop", &order).await?;
        if orderer.options.format() == Format::Json {
            show::json(&answer);
        }
        let Stopped { stop, is_new, is_kept, trouble } = serde_json::from_value(answer)?;
        if orderer.options.format() == Format::Table {
            match is_new {
                true => show::line("the harvest of the whole farm is stopped"),
                false => show::line(format_args!("it was stopped already: {stop}")),
            }
            show::line("`gleaner farm resume` lifts it");
        }
        if !is_kept {
            let trouble = trouble.unwrap_or_default();
            bail!(
                "the farm is stopped, but only until its monitor restarts: {trouble}; give the \
                 monitor a state_dir that it can write to, and stop again"
            );
        }
        Ok(ExitCode::SUCCESS)
    })
}

pub(super) fn resume(args: ResumeArgs) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let orderer = args.orderer;
        if let Some(address) = &orderer.broker {
            return order_of_broker(&orderer, address, "/v1/farm/resume", &json!({})).await;
        }
        let order = json!({"by": orderer.name()});
        let answer = orderer.order("/v1/farm/resume", &order).await?;
        match orderer.options.format() {
            Format::Json => show::json(&answer),
            Format::Table => match serde_json::from_value::<Resumed>(answer)?.lifted {
                Some(stop) => show::line(format_args!("harvested again; lifted: {stop}")),
                None => show::line("the farm was not stopped"),
            },
        }
        Ok(ExitCode::SUCCESS)
    })
}
