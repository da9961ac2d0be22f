//! Whether a host's hooks can tell its monitor of renders: with the address, the token and the
//! certificates of their settings.

use std::path::Path;

use gleaner_hooks::install::{Finding, Level, Site, setting};
use serde_json::Value;

use crate::client::{Client, Service};
use crate::process;

/// Asks the monitor as the hooks would.
pub(super) fn check(site: &Site) -> anyhow::Result<Finding> {
    let of = |name| setting(site, name);
    let Some(monitor) = of("GLEANER_MONITOR")? else {
        return Ok(Finding {
            level: Level::Note,
            what: "the hooks tell no monitor, which knows of renders by the agent's samples alone"
                .into(),
            to_do: "set GLEANER_MONITOR in /etc/gleaner/hook.env".into(),
        });
    };
    let (token_file, ca_file) = (of("GLEANER_TOKEN_FILE")?, of("GLEANER_CA_FILE")?);
    let answer = process::block_on(async {
        let [token_file, ca_file] =
            [&token_file, &ca_file].map(|file| file.as_deref().map(Path::new));
        let client = Client::new(Service::MONITOR, &monitor, token_file, ca_file)?;
        Ok(client.get::<Value>("/v1/farm").await?)
    });
    Ok(match answer {
        Ok(_) => Finding {
            level: Level::Good,
            what: format!("the monitor {monitor} answers who asks as the hooks do"),
            to_do: String::new(),
        },
        Err(error) => Finding {
            level: Level::Wrong,
            what: format!("the hooks cannot tell the monitor {monitor} of renders: {error:#}"),
            to_do:
                "see that it runs, and GLEANER_MONITOR, GLEANER_TOKEN_FILE and GLEANER_CA_FILE in \
                    /etc/gleaner/hook.env"
                    .into(),
        },
    })
}
