//! The demo's own volume, for whoever wants to turn it in a browser meanwhile.

use std::fs;
use std::io::Write;
use std::process::Command;

use anyhow::Context;
use gleaner_protocol::{NewView, ViewKernel, ViewStatus};

use super::cluster::Cluster;
use super::folders::Folders;
use super::volume;
use crate::child::{Child, Log};
use crate::client::Client;

const NAME: &str = "neghip";

/// Makes a dataset of the volume and a view of it; where that is.
pub(super) async fn open(cluster: &Cluster, folders: &Folders) -> anyhow::Result<String> {
    let path = folders.scratch().join("neghip.nrrd");
    let write = || {
        let mut file = fs::File::create(&path)?;
        let side = volume::NEGHIP_SIDE;
        writeln!(file, "NRRD0004\ntype: uint8\ndimension: 3\nsizes: {side} {side} {side}")?;
        writeln!(file, "encoding: gzip\n")?;
        file.write_all(volume::NEGHIP)
    };
    write().context("cannot write the demo's volume")?;
    let mut add = Command::new(&cluster.program);
    add.args(["dataset", "add", "--name", NAME, "--broker", &cluster.broker_url]).arg(&path);
    Child::start("gleaner dataset add", add, &Log::create(&folders.logs, "dataset")?)?
        .success()
        .await?;
    let new = NewView { dataset: NAME.into(), kernel: ViewKernel::Volume };
    let client = Client::local(&cluster.broker_url)?;
    let ViewStatus { view, .. } = client.post("/v1/views", &new).await?;
    Ok(format!("{}/#views/{view}", cluster.broker_url))
}
