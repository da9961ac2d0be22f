//! Votes over floating point: which outputs of a workunit count as one and the same.
//!
//! The outputs that have a vote on a workunit stand for one class each. A new output that is like
//! one of them, the earliest first, is reported to the core under that one's digest, so that the
//! core compares digests as ever; else it begins a class of its own. Nothing of this is kept
//! anywhere else: a vote in the journal names its class, and the output under that digest is the
//! first that was seen.
//!
//! A class is what is near its first output. So of three outputs the second can be near both others
//! and these be of two classes; but not where all are right, for kernels give outputs that are well
//! within the tolerance of each other, whatever computes them (but components that the data do not
//! determine so far, of which the kernels' README tells). Who computes wrongly by less than
//! it may so part the others, and one of them lose what its host's votes are worth.
//!
//! What is compared is compared by processes of their own ([`gleaner_comparison`]); here files are
//! only passed on.
//!
//! # Invariants
//! - Between a look at the classes of a workunit and the report that follows from it, no other
//!   report of it that is compared so reaches the driver: each has its [`Turn`].
//! - Only what would count is compared, and with outputs that are durable only.
//! - What cannot be read, or is larger than is compared, is in a class with its equals only.

mod turns;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};
use gleaner_comparison::{COMPARED_BYTES_MAX, Comparer, Kind};
use gleaner_protocol::control::{Outcome, Report};
use gleaner_protocol::job::{Comparison, JobSpec};
use gleaner_protocol::{Content, Digest, HostName, Manifest, Trust, error_chain};

pub(crate) use turns::Turn;

use crate::api::manifest;
use crate::blobs::{BlobError, BlobStore};
use crate::driver::{DriverGone, DriverHandle, PreparedReport};
use crate::limits::{CLASS_COMPARISONS_MAX, COMPARISON_PAUSE};
use crate::metrics::Metrics;
use crate::store::SmallBlobs;
use turns::Turns;

/// Finds the classes of outputs. Clones share turns and places.
#[derive(Clone)]
pub(crate) struct Classes {
    driver: DriverHandle,
    blobs: Arc<dyn BlobStore>,
    small_blobs: SmallBlobs,
    metrics: Arc<Metrics>,
    comparer: Comparer,
    turns: Turns,
}

/// How a job's outputs are compared, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Byte for byte, which never changes.
    Exact,
    /// Within a tolerance, or there is no such job.
    Other,
}

/// What a report would meet.
enum Outlook {
    /// Its job's outputs are compared byte for byte.
    Exact,
    /// It would not count.
    Nothing,
    /// The classes of its workunit, in the order of their first votes; all of them durable.
    Classes(Vec<Digest>),
}

/// The length of a file and its content.
type File = (u64, BoxStream<'static, Result<Bytes, BlobError>>);

impl Classes {
    pub(crate) fn new(
        driver: DriverHandle,
        blobs: Arc<dyn BlobStore>,
        small_blobs: SmallBlobs,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (comparer, turns) = (Comparer::default(), Turns::default());
        Self { driver, blobs, small_blobs, metrics, comparer, turns }
    }

    /// Whether a report's output can be like another without being equal.
    pub(crate) fn concern(report: &Report) -> bool {
        match &report.outcome {
            Outcome::Output(output) => {
                output.files().iter().any(|file| Kind::of(&file.name).is_some())
            }
            Outcome::Failed(_) => false,
        }
    }

    /// The turn of a report, to be held until the driver has it.
    pub(crate) async fn turn(&self, report: &Report) -> Turn {
        self.turns.of(report.replica.workunit).await
    }

    /// Puts a report of a host into its class, in its turn.
    pub(crate) async fn sort(
        &self,
        _turn: &Turn,
        host: &HostName,
        report: &mut PreparedReport,
        output: &Manifest,
    ) -> Result<Rule, DriverGone> {
        let classes = match self.outlook(host, report).await? {
            Outlook::Exact => return Ok(Rule::Exact),
            Outlook::Nothing => return Ok(Rule::Other),
            Outlook::Classes(classes) => classes,
        };
        let digest = report.manifest.as_ref().map(|(digest, _)| *digest);
        if digest.is_none_or(|digest| classes.contains(&digest)) {
            return Ok(Rule::Other);
        }
        for class in classes {
            let mut comparisons_left = CLASS_COMPARISONS_MAX;
            if self.is_like(class, output, &mut comparisons_left).await {
                tracing::debug!(replica = %report.replica, %class, "an output is like an earlier one");
                report.join(class);
                break;
            }
        }
        Ok(Rule::Other)
    }

    async fn outlook(
        &self,
        host: &HostName,
        report: &PreparedReport,
    ) -> Result<Outlook, DriverGone> {
        let (host, token, replica) = (host.clone(), report.token, report.replica);
        let outlook = self.driver.query(move |core| {
            let job = core.farm().job(replica.workunit.job);
            // Where the first vote decides there is nothing that it could be like.
            let is_alone = |spec: &JobSpec| spec.quorum() == 1 && spec.trust == Trust::Fixed;
            match job.map(|job| (job.spec.task.comparison(), is_alone(&job.spec))) {
                Some((Comparison::Exact, _) | (_, true)) => Outlook::Exact,
                Some((Comparison::Tolerance, false)) => core
                    .outputs_beside(&host, token, replica)
                    .map_or(Outlook::Nothing, Outlook::Classes),
                None => Outlook::Nothing,
            }
        });
        outlook.await
    }

    async fn is_like(
        &self,
        class: Digest,
        output: &Manifest,
        comparisons_left: &mut usize,
    ) -> bool {
        let small_blobs = self.small_blobs.clone();
        let read = tokio::task::spawn_blocking(move || manifest(&small_blobs, class)).await;
        let earlier = match read {
            Ok(Ok(earlier)) => earlier,
            Ok(Err(error)) => {
                tracing::error!("an output cannot be compared: {error}");
                return false;
            }
            Err(error) => {
                tracing::error!("reading an output failed: {error}");
                return false;
            }
        };
        // Whatever tells them apart without reading them goes first.
        let Some(differing) = differing(&earlier, output) else { return false };
        for (kind, one, other) in differing {
            let Some(left) = comparisons_left.checked_sub(1) else { return false };
            *comparisons_left = left;
            if !self.are_alike(kind, one, other).await {
                return false;
            }
        }
        true
    }

    /// Tries again while it cannot be found out for want of something on this machine: who is
    /// called different for that would be called a liar.
    async fn are_alike(&self, kind: Kind, one: &Content, other: &Content) -> bool {
        loop {
            let place = self.comparer.place().await;
            let found = match (self.open(one).await, self.open(other).await) {
                (Some(one), Some(other)) => place.are_alike(kind, one, other).await,
                _ => Ok(false),
            };
            match found {
                Ok(are_alike) => {
                    self.metrics.compared(are_alike);
                    return are_alike;
                }
                Err(error) => {
                    tracing::warn!("outputs cannot be compared now: {}", error_chain(&error));
                    // Nothing tells when there is room again.
                    tokio::time::sleep(COMPARISON_PAUSE).await;
                }
            }
        }
    }

    /// A content, where it is here.
    async fn open(&self, content: &Content) -> Option<File> {
        let digest = match content {
            Content::Inline(bytes) => {
                let piece = Ok(Bytes::copy_from_slice(bytes));
                return Some((bytes.len() as u64, stream::iter([piece]).boxed()));
            }
            Content::Stored { digest, .. } => *digest,
        };
        match self.blobs.open(digest).await {
            Ok(found) => found.map(|content| (content.bytes, content.stream)),
            Err(error) => {
                tracing::error!("an output cannot be compared: {error}");
                None
            }
        }
    }
}

/// The files of two outputs that differ and may be alike all the same; nothing where the outputs
/// cannot be alike.
fn differing<'a>(
    one: &'a Manifest,
    other: &'a Manifest,
) -> Option<Vec<(Kind, &'a Content, &'a Content)>> {
    let (one, other) = (one.files(), other.files());
    if !one.iter().map(|file| &file.name).eq(other.iter().map(|file| &file.name)) {
        return None;
    }
    let pairs = one.iter().zip(other).filter(|(one, other)| one.content != other.content);
    let may_be_alike = |content: &Content| content.len() <= COMPARED_BYTES_MAX;
    pairs
        .map(|(one, other)| {
            let kind = Kind::of(&one.name)?;
            let (one, other) = (&one.content, &other.content);
            (may_be_alike(one) && may_be_alike(other)).then_some((kind, one, other))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::OutputFile;

    use super::*;

    fn output(files: &[(&str, &str)]) -> Manifest {
        let file = |(name, text): &(&str, &str)| OutputFile {
            name: (*name).into(),
            content: Content::Inline(text.as_bytes().into()),
        };
        Manifest::new(files.iter().map(file).collect()).expect("a manifest")
    }

    #[test]
    fn only_what_differs_and_may_be_alike_is_compared() {
        let one = output(&[("a.csv", "1"), ("b.csv", "1"), ("mesh.ply", "1")]);
        let near = output(&[("a.csv", "1"), ("b.csv", "1.0"), ("mesh.ply", "1")]);
        let pairs = differing(&one, &near).expect("they may be alike");
        let expected = (Kind::Table, &one.files()[1].content, &near.files()[1].content);
        assert_eq!(pairs, [expected]);
        for other in [
            output(&[("a.csv", "1"), ("b.csv", "1.0"), ("mesh.ply", "1.0")]),
            output(&[("a.csv", "1"), ("b.csv", "1.0")]),
            output(&[("a.csv", "1"), ("c.csv", "1.0"), ("mesh.ply", "1")]),
        ] {
            assert_eq!(differing(&one, &other), None);
        }
        let stored = |bytes| {
            let content = Content::Stored { digest: Digest::of(b"a table"), bytes };
            Manifest::new(vec![OutputFile { name: "a.csv".into(), content }]).expect("a manifest")
        };
        let one = output(&[("a.csv", "1")]);
        assert_eq!(differing(&one, &stored(COMPARED_BYTES_MAX)).map(|pairs| pairs.len()), Some(1));
        assert_eq!(differing(&one, &stored(COMPARED_BYTES_MAX + 1)), None);
    }
}
