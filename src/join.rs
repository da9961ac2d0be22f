//! `gleaner join`.

mod service;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use gleaner_identity::{InvitationLine, KeyPair, Purpose, pinned_config};
use gleaner_protocol::HostName;
use gleaner_protocol::people::{Enrolled, Enrolment, Role};
use rustls::pki_types::CertificateDer;

use crate::client::{Client, ClientError, Format, Service};
use crate::failure::Failure;
use crate::joined::Joined;
use crate::{people, process, show};

/// Joins the broker of an invitation: makes a key for it, and enrols that.
///
/// Who submits or looks then needs no options any more. For an agent its configuration is written.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What `gleaner invite` printed, between the quotes.
    #[arg(value_name = "INVITATION")]
    line: InvitationLine,
    /// Of an agent or a hook: the name of this host [default: the machine's].
    #[arg(long)]
    name: Option<HostName>,
    /// Folder for the key and an agent's configuration [default: ~/.config/gleaner].
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Writes the key to this file as a token, for a program that shows one with each request and signs
    /// nothing: a monitoring system, a script. A hook's key is always one.
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// Of an agent: has systemd's user manager start it, now and at each login. The unit is
    /// gleaner-agent.service.
    #[arg(long)]
    service: bool,
    /// Certificates (PEM) to trust for https:// instead of the system's, for an invitation without a pin.
    #[arg(long, env = "GLEANER_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// For people, or for programs.
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(join(args))
}

async fn join(args: Args) -> anyhow::Result<ExitCode> {
    let InvitationLine { broker, invitation } = &args.line;
    let ca_file = args.ca_file.as_deref().map(std::path::absolute).transpose()?;
    let pin = invitation.pin;
    if pin.is_some() && !broker.starts_with("https://") {
        let why = "the invitation tells the key of a certificate, and its address has no https://: ask \
                   whoever invited you for a right one";
        return Err(Failure::Usage(why.into()).into());
    }
    let (client, pinned) = match pin {
        Some(pin) => {
            let (tls, pinned) = pinned_config(pin)?;
            (Client::over(Service::BROKER, broker, tls)?, Some(pinned))
        }
        None => (Client::new(Service::BROKER, broker, None, ca_file.as_deref())?, None),
    };
    let nowhere = || Failure::Usage("no home folder: say where to, with --folder".into());
    let folder = args.folder.clone().or_else(Joined::folder).ok_or_else(nowhere)?;
    let folder = std::path::absolute(folder)?;
    fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    // All that is needed afterwards comes first: an invitation may be good once only.
    let token_file = args.token.as_deref().map(std::path::absolute).transpose()?;
    let certificate_file = token_file.as_ref().map(|path| path.with_extension("pem"));
    if token_file.is_some() && token_file == certificate_file {
        let why = "--token: a .pem file is where the certificate to trust comes; name another one";
        return Err(Failure::Usage(why.into()).into());
    }
    let written = [&token_file, &certificate_file].into_iter().flatten();
    if let Some(path) = written.into_iter().find(|path| path.exists()) {
        let why =
            format!("{} is there already: move it away, or name another file", path.display());
        return Err(Failure::Usage(why).into());
    }
    let place = Joined::make_place();
    let key = KeyPair::generate()?;
    let key_file = folder.join(format!("{}.key", key.public().id()));
    // First: a key that is enrolled and lost is of no use to anybody.
    match &token_file {
        Some(path) => key.write_new_token(path)?,
        None => key.write_new(&key_file)?,
    }
    let enrolment = Enrolment {
        invitation: invitation.clone(),
        host: args.name.clone().or_else(machine_name),
        public_key: key.public().to_string(),
        proof: key.sign(Purpose::Enrol, &invitation.id),
        as_token: token_file.is_some(),
    };
    let enrolled: Enrolled = match client.post("/v1/enrol", &enrolment).await {
        Ok(enrolled) => enrolled,
        Err(error) => {
            let is_refused = match &error {
                ClientError::Refused { status, .. } => status.is_client_error(),
                // It never came there.
                ClientError::NotFound(_) | ClientError::Unreachable { .. } => true,
                _ => false,
            };
            if is_refused {
                // Nobody knows it. Where the answer was lost the broker may.
                let _ = fs::remove_file(token_file.as_ref().unwrap_or(&key_file));
            }
            return Err(error.into());
        }
    };
    // What is to be trusted from now on: the broker's own certificate, where nobody else vouches for it.
    let kept = pinned.map(|pinned| pinned.to_be_kept()).unwrap_or_default();
    let ca_file = match kept.is_empty() {
        true => ca_file,
        false => {
            let beside_key = folder.join(format!("{}.pem", enrolled.principal.id));
            Some(keep(certificate_file.unwrap_or(beside_key), &kept)?)
        }
    };
    let role = enrolled.principal.role;
    let next = match role {
        _ if enrolled.principal.as_token => {
            let token_file = match token_file {
                Some(path) => path,
                None => {
                    // A hook's is one, whether that was said or not.
                    let path = key_file.with_extension("token");
                    key.write_new_token(&path)?;
                    let _ = fs::remove_file(&key_file);
                    path
                }
            };
            let path = token_file.display();
            let trust =
                ca_file.map(|path| format!(" --ca-file {}", path.display())).unwrap_or_default();
            match role {
                Role::Hook => format!(
                    "give `gleaner farm install` --token-file {path}{trust}; the user of this host's hooks \
                     must be able to read the token"
                ),
                _ => format!(
                    "its token is in {path}: `Authorization: Bearer TOKEN`, or --token-file {path}{trust}"
                ),
            }
        }
        Role::Hook => {
            anyhow::bail!("the broker does not know that a hook's key is shown as a token")
        }
        Role::Agent => {
            let next = configure_agent(&folder, broker, &key_file, ca_file.as_deref(), &enrolled)?;
            if args.service { start_agent(&folder)? } else { next }
        }
        Role::Monitor => {
            let ca_file =
                ca_file.map(|path| format!(" and ca_file = {path:?}")).unwrap_or_default();
            format!("set broker_key_file = {key_file:?}{ca_file} in the monitor's configuration")
        }
        Role::Viewer | Role::Submitter | Role::Operator | Role::Admin => {
            let joined = Joined { broker: broker.clone(), key_file, ca_file };
            joined.write(&place?)?;
            "commands here speak to that broker from now on: try `gleaner jobs`".to_owned()
        }
    };
    people::print(&[enrolled.principal], args.format);
    show::note(format_args!("joined {broker}; {next}"));
    Ok(ExitCode::SUCCESS)
}

/// Keeps certificates in a file beside the key.
fn keep(path: PathBuf, certificates: &[CertificateDer<'static>]) -> anyhow::Result<PathBuf> {
    let text: String = certificates
        .iter()
        .map(|of| pem::encode(&pem::Pem::new("CERTIFICATE", of.to_vec())))
        .collect();
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Writes an agent's configuration; what is to be done next.
fn configure_agent(
    folder: &Path,
    broker: &str,
    key_file: &Path,
    ca_file: Option<&Path>,
    Enrolled { principal, monitor_keys }: &Enrolled,
) -> anyhow::Result<String> {
    let path = folder.join("agent.toml");
    let name = principal.host.as_ref().context("the broker names no host for this agent")?;
    let mut text = String::new();
    let key_file = key_file.to_string_lossy();
    for (key, value) in [("name", name.as_str()), ("broker", broker), ("key_file", &key_file)] {
        text += &format!("{key} = {}\n", quoted(value));
    }
    if let Some(ca_file) = ca_file {
        text += &format!("ca_file = {}\n", quoted(&ca_file.to_string_lossy()));
    }
    if !monitor_keys.is_empty() {
        // What the farm leaves of a host of its own is this monitor's word alone.
        text += &format!("monitor_keys = {}\n", toml::Value::from(monitor_keys.clone()));
    }
    if path.exists() {
        return Ok(format!(
            "{} is there already: put this into it, in the place of what it says of these:\n{text}",
            path.display()
        ));
    }
    let about = "# Written by `gleaner join`. What else can be set: `gleaner agent --help`.\n";
    fs::write(&path, format!("{about}{text}"))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(format!("start the agent: gleaner agent --config {}", path.display()))
}

/// Has the agent of this folder's configuration started; what was done.
fn start_agent(folder: &Path) -> anyhow::Result<String> {
    let units = Joined::config_home().context("no home folder: where are your units?")?;
    let unit = service::start(&units, &folder.join("agent.toml"))?;
    let unit = unit.display();
    Ok(format!(
        "the agent runs, by {unit}; `gleaner agent status` says how it stands, and `loginctl \
         enable-linger` has it run while you are logged out. `gleaner agent pause` pauses it, `gleaner agent \
         finish` lets what runs come to its end and takes nothing more, and `systemctl --user disable --now \
         gleaner-agent` takes it away"
    ))
}

/// As TOML has a string.
fn quoted(text: &str) -> toml::Value {
    toml::Value::String(text.to_owned())
}

fn machine_name() -> Option<HostName> {
    let uname = rustix::system::uname();
    HostName::new(uname.nodename().to_str().ok()?).ok()
}
