//! OpenCue: what the RQD of each host says of itself.
//!
//! Cuebot has no list of hosts that is plain to read, and each host's RQD has what runs there at
//! once: `rqd.RqdInterface/ReportStatus`, a call of gRPC over HTTP/2 without TLS, by default on port
//! 8444 (`proto/src/rqd.proto` and `report.proto` of `AcademySoftwareFoundation/OpenCue`). Which
//! hosts there are stands in the settings.
//!
//! A host is known by its name in the settings, not by what its RQD calls itself: that is an IP
//! address unless it was told otherwise, and no host speaks for another one.
//!
//! # Invariants
//! - A host whose RQD does not answer, in time and with sense, is silent: it is as if the farm had
//!   not been polled for it, and has no part in what is known of the others.
//! - What a host says is as old as its own question.

mod address;
mod call;
mod counted;
mod lookups;
mod report;
mod turns;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use gleaner_protocol::boottime;
use tracing::{info, warn};

use self::address::RqdAddress;
use self::lookups::Lookups;
use self::turns::Turns;
use super::FarmError;
use crate::limits::{RQD_AT_ONCE_MAX, RQD_HOSTS_MAX};
use crate::{FarmAnswer, HostAllocation, SourceError};

pub(super) const NAME: &str = "opencue";

/// All hosts of a farm.
#[derive(Debug)]
pub(super) struct Hosts {
    rqds: Vec<RqdAddress>,
    /// For how long each may take.
    limit: Duration,
    lookups: Lookups,
    turns: Mutex<Turns>,
}

impl Hosts {
    /// Those of these entries, `[NAME=]HOST[:PORT]` each, which have so long to answer.
    pub(super) fn new(entries: &[String], limit: Duration) -> Result<Self, FarmError> {
        if entries.is_empty() {
            return Err(FarmError::WithoutHosts(super::Manager::OpenCue));
        }
        if entries.len() > RQD_HOSTS_MAX {
            return Err(FarmError::TooManyHosts(entries.len()));
        }
        let mut rqds = BTreeMap::new();
        for entry in entries {
            let refuse = |reason| FarmError::Host { entry: entry.clone(), reason };
            let rqd: RqdAddress = entry.parse().map_err(refuse)?;
            if let Some(other) = rqds.insert(rqd.name.clone(), rqd) {
                return Err(refuse(format!("host {} comes twice", other.name)));
            }
        }
        let turns = Mutex::new(Turns::new(rqds.len()));
        let rqds = rqds.into_values().collect();
        Ok(Self { rqds, limit, lookups: Lookups::new(), turns })
    }

    /// Asks those that answer, and then those that did not, of whom it may leave out some.
    ///
    /// # Errors
    /// None of them has answered: why not the first one.
    pub(super) async fn poll(&self) -> Result<FarmAnswer, SourceError> {
        let (first, waves) = {
            let turns = self.turns();
            (turns.first(), turns.waves())
        };
        let was_silent = !waves.is_empty();
        let mut said = self.ask_all(first).await;
        for wave in waves {
            let of_wave = self.ask_all(wave).await;
            let goes_on = Turns::go_on(of_wave.values().map(Result::is_ok));
            said.extend(of_wave);
            if !goes_on {
                break;
            }
        }
        let mut turns = self.turns();
        let mut hosts = Vec::new();
        let (mut news, mut first) = (0, None);
        for (number, said) in said {
            let is_news = turns.note(number, said.is_ok());
            match said {
                Ok(host) => hosts.push(host),
                Err(error) => {
                    news += usize::from(is_news);
                    first.get_or_insert(error);
                }
            }
        }
        let mut silent: Vec<_> =
            turns.silent().iter().map(|host| self.rqds[*host].name.clone()).collect();
        silent.sort_unstable();
        let say = |error: &SourceError| {
            format!("{} RQDs do not answer, the first: {error}; {}", silent.len(), error.cure())
        };
        let notes: Vec<String> = first.as_ref().map(say).into_iter().collect();
        match first {
            Some(error) if hosts.is_empty() => return Err(error),
            Some(error) if news > 0 => {
                warn!(hosts = silent.len(), %error, "RQDs do not answer; the first one's error is shown");
            }
            None if was_silent => info!("all RQDs answer again"),
            _ => {}
        }
        Ok(FarmAnswer { hosts, silent, notes, ..FarmAnswer::default() })
    }

    /// What each of these says, by its number.
    async fn ask_all(
        &self,
        hosts: Vec<usize>,
    ) -> BTreeMap<usize, Result<HostAllocation, SourceError>> {
        let asked =
            hosts.into_iter().map(|host| async move { (host, self.ask(&self.rqds[host]).await) });
        stream::iter(asked).buffer_unordered(RQD_AT_ONCE_MAX).collect().await
    }

    /// Twice where it books what has no name: mostly a frame that begins or ends in this moment, which
    /// is listed, or gone, when it is asked again.
    async fn ask(&self, rqd: &RqdAddress) -> Result<HostAllocation, SourceError> {
        let begun = boottime();
        let host = self.ask_once(rqd, self.limit).await?;
        if !report::has_unnamed(&host) {
            return Ok(host);
        }
        let left = self.limit.saturating_sub(boottime().since(begun).into());
        Ok(self.ask_once(rqd, left).await.unwrap_or(host))
    }

    async fn ask_once(
        &self,
        rqd: &RqdAddress,
        limit: Duration,
    ) -> Result<HostAllocation, SourceError> {
        let asked_at = boottime();
        let answer = call::report_status(rqd, &self.lookups, limit).await?;
        let malformed = |reason| SourceError::Malformed { asked: rqd.to_string(), reason };
        report::allocation(&rqd.name, asked_at, &answer).map_err(malformed)
    }

    /// No code that holds it can leave it half changed.
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::HostName;
    use tokio::net::TcpSocket;

    use super::call::played;
    use super::*;
    use crate::sources::inventory::seen;

    /// Far more than anything here takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn hosts(entries: &[String]) -> Result<Hosts, String> {
        Hosts::new(entries, PATIENCE).map_err(|error| error.to_string())
    }

    #[test]
    fn a_host_is_named_once() {
        let of = |entries: &[&str]| {
            hosts(&entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["b", "a=10.0.0.1", "c:1"]).expect("three").rqds.len(), 3);
        for (entries, expected) in [
            (
                &["a", "a:9444"][..],
                "\"a:9444\" of poll_hosts is no [NAME=]HOST[:PORT]: host a comes",
            ),
            (&["a", "b:"], "\"b:\" of poll_hosts"),
            (&[], "poll_hosts = [\"render042\"]"),
        ] {
            let error = of(entries).expect_err("refused");
            assert!(error.contains(expected), "{error}");
        }
        let many: Vec<String> = (0..=RQD_HOSTS_MAX).map(|number| format!("r{number}")).collect();
        assert!(hosts(&many).expect_err("one too many").contains("4097 hosts, more than 4096"));
    }

    #[tokio::test]
    async fn a_host_that_does_not_answer_is_silent_and_none_of_the_others_is() {
        let idle = played::rqd(report::tests::IDLE).await;
        let busy = played::rqd(report::tests::BUSY).await;
        let nonsense = played::rqd(b"\x00\x00\x00\x00\x02\x0a\x00").await;
        // A port that is somebody's, who does not listen.
        let nobody = TcpSocket::new_v4().expect("a socket");
        nobody.bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let gone = nobody.local_addr().expect("an address");
        let entries = [
            format!("busy={busy}"),
            format!("gone={gone}"),
            format!("idle={idle}"),
            format!("nonsense={nonsense}"),
        ];
        let began = boottime();
        let answer = hosts(&entries).expect("hosts").poll().await.expect("two answer");
        for host in &answer.hosts {
            let asked_at = host.asked_at.expect("each was asked by itself");
            assert!(began <= asked_at && asked_at <= boottime());
        }
        let names: Vec<&str> = answer.silent.iter().map(HostName::as_str).collect();
        assert_eq!(names, ["gone", "nonsense"]);
        assert_eq!(
            seen(Ok(answer.hosts)),
            [report::tests::BUSY_SEEN.replace("farm1", "busy"), "idle 4c 24105m:".into()]
        );
        let error = hosts(&entries[1..2]).expect("a host").poll().await.expect_err("none");
        assert!(error.to_string().contains("RQD of gone at 127.0.0.1:"), "{error}");
    }

    #[tokio::test]
    async fn a_frame_that_ends_when_its_host_is_asked_books_nothing() {
        let ending = [report::tests::ENDING, report::tests::ENDED];
        for (says, expected) in [
            (&ending[..], "r1 4c 24105m:"),
            // It goes on, as it does where a frame is about to begin.
            (&ending[..1], "r1 4c 24105m: opencue:unnamed 2c ?m"),
            // What is said the second time makes no sense.
            (&[report::tests::ENDING, b""], "r1 4c 24105m: opencue:unnamed 2c ?m"),
        ] {
            let rqd = played::rqd_in_turn(says.to_vec()).await;
            let answer = hosts(&[format!("r1={rqd}")]).expect("a host").poll().await;
            let answer = answer.expect("it answers");
            assert_eq!(seen(Ok(answer.hosts)), [expected]);
        }
    }

    #[tokio::test]
    async fn many_that_do_not_answer_are_not_all_asked_in_each_poll_and_are_all_silent() {
        let idle = played::rqd(report::tests::IDLE).await;
        let nobody = TcpSocket::new_v4().expect("a socket");
        nobody.bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let gone = nobody.local_addr().expect("an address");
        let many = 2 * RQD_AT_ONCE_MAX;
        let entries: Vec<String> = (0..many).map(|number| format!("g{number}={gone}")).collect();
        let farm = hosts(&[entries, vec![format!("idle={idle}")]].concat()).expect("hosts");
        for poll in 0..3 {
            let answer = farm.poll().await.expect("one answers");
            assert_eq!((answer.hosts.len(), answer.silent.len()), (1, many), "poll {poll}");
        }
    }
}
