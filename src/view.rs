//! `gleaner view`.

mod record;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use gleaner_protocol::api::LoginLink;
use gleaner_protocol::{DatasetName, NewView, ViewKernel, ViewStatus};
use serde::Serialize;

use crate::client::{Format, Options};
use crate::{process, show};

pub(crate) use record::Recording;

/// Opens a volume in a browser: hosts draw it in what their farm leaves.
///
/// Prints a link that is good once, for five minutes, and opens it where there is a desktop. The view stays
/// where it is for a week after it was used last; the page Views has them all.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The dataset, which `gleaner dataset add` has made of a volume.
    dataset: DatasetName,
    /// What draws it.
    #[arg(long, default_value = "volume", value_name = "KERNEL")]
    kernel: Kernel,
    /// Only prints the link.
    #[arg(long)]
    no_browser: bool,
    /// Writes down what is done in the browser, into a new file, until the view is closed or this is
    /// stopped: for `gleaner simulate visualization-live` and `gleaner bench views --replay`.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// What draws a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kernel {
    /// Ray casting.
    Volume,
    /// Paints the number of each state: shows how long everything but drawing takes.
    Synthetic,
}

impl From<Kernel> for ViewKernel {
    fn from(kernel: Kernel) -> Self {
        match kernel {
            Kernel::Volume => Self::Volume,
            Kernel::Synthetic => Self::Synthetic,
        }
    }
}

#[derive(Debug, Serialize)]
struct Opened {
    view: String,
    url: String,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let client = args.options.client()?;
        let new = NewView { dataset: args.dataset.to_string(), kernel: args.kernel.into() };
        let mut recording = args.record.as_deref().map(Recording::create).transpose()?;
        let view: ViewStatus = client.post("/v1/views", &new).await?;
        let LoginLink { secret, .. } = client.post("/v1/logins", &()).await?;
        let to = format!("views/{}", view.view);
        let hash = secret.map_or_else(|| to.clone(), |secret| format!("login={secret}&to={to}"));
        let url = format!("{}/#{hash}", client.address());
        match args.options.format() {
            Format::Json => show::json(&Opened { view: view.view.clone(), url: url.clone() }),
            Format::Table => show::line(&url),
        }
        if !args.no_browser && args.options.format() == Format::Table {
            open_browser(&url);
        }
        if let Some(recording) = &mut recording {
            record::follow(&client, view, recording, process::stopped()).await?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Opens an address in the desktop's browser, where there is one: the link is printed in any case.
fn open_browser(url: &str) {
    let has_desktop =
        ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    if has_desktop {
        let mut open = Command::new("xdg-open");
        open.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _ = open.spawn();
    }
}
