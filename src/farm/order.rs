//! `gleaner farm stop` and `gleaner farm resume`: the red button of a whole farm.

use std::process::ExitCode;

use anyhow::bail;
use gleaner_monitor::Stop;
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
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
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

pub(super) fn stop(args: StopArgs) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let StopArgs { reason, orderer } = args;
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
