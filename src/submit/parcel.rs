//! A job with the contents that it needs, checked as a whole before any of it is sent.

use gleaner_protocol::Digest;
use gleaner_protocol::api::Submitted;
use gleaner_protocol::job::{InputFile, JobSpec};
use gleaner_protocol::limits::{FEATURES_MAX, HTTP_BODY_BYTES_MAX};

use super::feature::sides;
use super::input::{NamedInput, OpenInput};
use super::items::TOO_LONG;
use crate::client::Client;
use crate::failure::Failure;

/// What is sent.
#[derive(Debug)]
pub(super) struct Parcel {
    /// The job as JSON.
    job: Vec<u8>,
    /// Contents that are small.
    contents: Vec<Vec<u8>>,
    inputs: Vec<OpenInput>,
}

impl Parcel {
    /// A job that needs nothing, or nothing that is here.
    pub(super) fn of(job: JobSpec) -> Result<Self, Failure> {
        Ok(Self { job: checked(&job)?, contents: Vec::new(), inputs: Vec::new() })
    }

    /// A job with these contents and inputs, which looks the same whatever is in its inputs.
    pub(super) fn pack(
        contents: Vec<Vec<u8>>,
        inputs: &[NamedInput],
        job: impl Fn(Vec<InputFile>) -> JobSpec,
    ) -> anyhow::Result<Self> {
        // What is wrong with it is told before anything long is read.
        let unread = |input: &NamedInput| InputFile {
            name: input.name.clone(),
            digest: Digest::from_bytes([0; 32]),
        };
        checked(&job(inputs.iter().map(unread).collect()))?;
        let inputs = inputs.iter().map(OpenInput::open).collect::<Result<Vec<_>, _>>()?;
        let mut job = job(inputs.iter().map(OpenInput::described).collect());
        let all_sides = inputs.iter().map(|input| sides(input.path()));
        let sides = all_sides.into_iter().find(|sides| !sides.is_empty()).unwrap_or_default();
        let features = &mut job.profile.features;
        for (name, side) in sides {
            if features.len() < FEATURES_MAX {
                features.entry(name).or_insert(side);
            }
        }
        Ok(Self { job: checked(&job)?, contents, inputs })
    }

    /// Uploads what the job needs, then submits it.
    pub(super) async fn send(self, client: &Client) -> anyhow::Result<Submitted> {
        for content in self.contents {
            client.put_blob(Digest::of(&content), content).await?;
        }
        for input in self.inputs {
            input.upload(client).await?;
        }
        Ok(client.post_json("/v1/jobs", self.job).await?)
    }
}

/// A job as JSON, where a broker can take it.
fn checked(job: &JobSpec) -> Result<Vec<u8>, Failure> {
    job.check().map_err(|error| Failure::Usage(error.to_string()))?;
    let json = serde_json::to_vec(job).expect("our own types serialise");
    if json.len() as u64 > HTTP_BODY_BYTES_MAX {
        let bytes = json.len();
        return Err(Failure::Usage(format!("the job has {bytes} bytes as JSON; {TOO_LONG}")));
    }
    Ok(json)
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::job::Workunits;

    use super::*;

    #[test]
    fn a_job_is_as_long_as_its_json() {
        let job = |items: usize| {
            let text = r#"{"task":{"kernel":"x"},"workunits":{"count":1}}"#;
            let mut job: JobSpec = serde_json::from_str(text).expect("a job");
            // Each quote is two bytes of JSON.
            job.workunits = Workunits::Items(vec!["\"".repeat(60_000); items].into());
            job
        };
        checked(&job(139)).expect("just below 16 MiB");
        let error = checked(&job(140)).expect_err("above, though the items have 8 MiB").to_string();
        assert!(error.contains("16 MiB at most: submit several jobs, or --count and an --input"));
    }
}
