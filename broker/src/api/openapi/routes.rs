//! What each request does, brings and may be answered.

use gleaner_protocol::api::{
    ApplicationHistory, ChunkStatus, DatasetRequest, DatasetStatus, Explanation, FarmComparison,
    FarmComparisonStatus, FarmEventsAccepted, FarmHistoryRow, FarmReport, FarmReportStatus,
    FarmStopStatus, HostStatus, JobStatus, LaneStatus, LoginLink, LoginRequest, Me, OpenWorkunit,
    RecordedApplication, ShareStatus, StopRequest, Submitted, UsageRow, WorkunitLog,
    WorkunitResult,
};
use gleaner_protocol::farm::FarmEvent;
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::people::{
    Challenge, ChallengeRequest, Enrolled, Enrolment, FarmPeople, InvitationRequest, Invited,
    PrincipalStatus, Session, SessionRequest,
};
use gleaner_protocol::{NewView, ViewStatus};

use super::answers::{Gives, Takes};
use super::{SchemaOf, of};
use crate::api::{blobs, datasets, farm, jobs, people, results, usage, workunits};
use crate::people::Audit;
use crate::views::Histogram;

const GET: &str = "GET";
const PUT: &str = "PUT";
const POST: &str = "POST";
const DELETE: &str = "DELETE";

const BYTES: &str = "application/octet-stream";

/// A request.
pub(super) struct Route {
    pub(super) method: &'static str,
    /// Its path; parameters stand in braces, by their names.
    pub(super) path: &'static str,
    /// What it does.
    pub(super) says: &'static str,
    /// What may stand after `?`.
    pub(super) query: Option<SchemaOf>,
    pub(super) takes: Takes,
    /// Answers to what could be done.
    pub(super) gives: &'static [(u16, Gives)],
    /// Statuses of the other answers, beside those that any request may get.
    pub(super) refuses: &'static [u16],
}

impl Route {
    const fn new(method: &'static str, path: &'static str, says: &'static str) -> Self {
        Self { method, path, says, query: None, takes: Takes::Nothing, gives: &[], refuses: &[] }
    }

    const fn query(self, query: SchemaOf) -> Self {
        Self { query: Some(query), ..self }
    }

    const fn takes(self, takes: Takes) -> Self {
        Self { takes, ..self }
    }

    const fn gives(self, gives: &'static [(u16, Gives)]) -> Self {
        Self { gives, ..self }
    }

    const fn refuses(self, refuses: &'static [u16]) -> Self {
        Self { refuses, ..self }
    }

    /// Its path as a row of `ACCESS` has it.
    pub(super) fn row(&self) -> String {
        let mut row = String::new();
        for (at, part) in self.path.split('{').enumerate() {
            match part.split_once('}') {
                Some((_, rest)) if at > 0 => row.extend(["{}", rest]),
                _ => row.push_str(part),
            }
        }
        row
    }
}

/// All requests that the broker takes, but files of pages.
pub(super) const ROUTES: &[Route] = &[
    Route::new(GET, "/healthz", "Whether the broker lives and its store takes more")
        .gives(&[(200, Gives::Text("text/plain; charset=utf-8"))])
        .refuses(&[503]),
    Route::new(GET, "/metrics", "Counts and times, as Prometheus reads them")
        .gives(&[(200, Gives::Text("application/openmetrics-text"))]),
    Route::new(GET, "/v1/openapi.json", "This document")
        .gives(&[(200, Gives::Json(of::<serde_json::Value>))]),
    // Jobs.
    Route::new(POST, "/v1/jobs", "Submits a job; it is on disk when it is answered")
        .takes(Takes::Json(of::<JobSpec>))
        .gives(&[(201, Gives::Json(of::<Submitted>))])
        .refuses(&[400, 408, 409, 413, 500]),
    Route::new(GET, "/v1/jobs", "Jobs, in order of submission")
        .query(of::<jobs::Page>)
        .gives(&[(200, Gives::List(of::<JobStatus>))])
        .refuses(&[400]),
    Route::new(GET, "/v1/jobs/{job}", "Where a job stands")
        .gives(&[(200, Gives::Json(of::<JobStatus>))])
        .refuses(&[400, 404]),
    Route::new(DELETE, "/v1/jobs/{job}", "Cancels a job; one that has ended stays as it is")
        .gives(&[(200, Gives::Json(of::<JobStatus>))])
        .refuses(&[400, 404]),
    Route::new(POST, "/v1/jobs/{job}/forget", "Forgets a job that has ended, and its results")
        .gives(&[(200, Gives::Json(of::<JobStatus>))])
        .refuses(&[400, 404, 409]),
    Route::new(GET, "/v1/jobs/{job}/workunits", "Workunits that are begun and not ended")
        .query(of::<workunits::Page>)
        .gives(&[(200, Gives::List(of::<OpenWorkunit>))])
        .refuses(&[400, 404]),
    Route::new(GET, "/v1/jobs/{job}/results", "Workunits that have ended")
        .query(of::<results::Page>)
        .gives(&[(200, Gives::List(of::<WorkunitResult>))])
        .refuses(&[400, 404, 500]),
    Route::new(GET, "/v1/jobs/{job}/results/{index}/{name}", "A file of a result")
        .gives(&[(200, Gives::File(BYTES))])
        .refuses(&[400, 404, 500]),
    Route::new(GET, "/v1/jobs/{job}/archive", "All results of a job as one tar file")
        .gives(&[(200, Gives::File("application/x-tar"))])
        .refuses(&[400, 404]),
    Route::new(GET, "/v1/jobs/{job}/log/{index}", "What the replicas of a workunit have printed")
        .gives(&[(200, Gives::Json(of::<WorkunitLog>))])
        .refuses(&[400, 404, 500]),
    Route::new(GET, "/v1/explain/{job}", "Why a job stands where it does")
        .gives(&[(200, Gives::Json(of::<Explanation>))])
        .refuses(&[400, 404]),
    Route::new(GET, "/v1/explain/{job}/{index}", "Why a workunit stands where it does")
        .gives(&[(200, Gives::Json(of::<Explanation>))])
        .refuses(&[400, 404]),
    // The farm.
    Route::new(POST, "/v1/farm/events", "A monitor opens and closes fragments")
        .takes(Takes::Json(of::<Vec<FarmEvent>>))
        .gives(&[(200, Gives::Json(of::<FarmEventsAccepted>))])
        .refuses(&[400, 408, 413]),
    Route::new(
        GET,
        "/v1/farm/people",
        "Whom a monitor is to know: once it is another list, or after some time",
    )
    .query(of::<people::Known>)
    .gives(&[(200, Gives::Json(of::<FarmPeople>))])
    .refuses(&[400]),
    Route::new(
        POST,
        "/v1/farm/report",
        "How polls go and where sources disagree, as the monitor has it",
    )
    .takes(Takes::Json(of::<FarmReport>))
    .gives(&[(204, Gives::Nothing)])
    .refuses(&[400, 408, 413]),
    Route::new(GET, "/v1/farm/report", "What the monitor has said of that last")
        .gives(&[(200, Gives::Json(of::<FarmReportStatus>))]),
    Route::new(POST, "/v1/farm/comparison", "What harvest costs renders, as the monitor has it")
        .takes(Takes::Json(of::<FarmComparison>))
        .gives(&[(204, Gives::Nothing)])
        .refuses(&[400, 408, 413]),
    Route::new(GET, "/v1/farm/comparison", "What the monitor has said of that last")
        .gives(&[(200, Gives::Json(of::<FarmComparisonStatus>))]),
    Route::new(GET, "/v1/farm/stop", "Who has stopped the harvest of all hosts, if anybody has")
        .gives(&[(200, Gives::Json(of::<FarmStopStatus>))]),
    Route::new(POST, "/v1/farm/stop", "Stops the harvest of all hosts, until it is resumed")
        .takes(Takes::Json(of::<StopRequest>))
        .gives(&[(200, Gives::Json(of::<FarmStopStatus>))])
        .refuses(&[400, 408, 413, 500]),
    Route::new(POST, "/v1/farm/resume", "Lets all hosts be harvested again")
        .gives(&[(200, Gives::Json(of::<FarmStopStatus>))])
        .refuses(&[500]),
    Route::new(GET, "/v1/farm/history", "What the farm did over time")
        .query(of::<farm::Asked>)
        .gives(&[(200, Gives::List(of::<FarmHistoryRow>))])
        .refuses(&[400]),
    Route::new(GET, "/v1/hosts", "Hosts, in the order of their names")
        .query(of::<farm::Page>)
        .gives(&[(200, Gives::List(of::<HostStatus>))])
        .refuses(&[400]),
    Route::new(GET, "/v1/lanes", "Lanes, and what each holds")
        .gives(&[(200, Gives::List(of::<LaneStatus>))]),
    Route::new(GET, "/v1/shares", "Who answers for jobs; whoever comes next before the others")
        .gives(&[(200, Gives::List(of::<ShareStatus>))]),
    Route::new(GET, "/v1/usage", "What ended replicas took, and what of it is charged")
        .query(of::<usage::Asked>)
        .gives(&[(200, Gives::List(of::<UsageRow>))])
        .refuses(&[400]),
    Route::new(GET, "/v1/kernel-times", "How long kernels took on each kind of host")
        .gives(&[(200, Gives::Text("text/csv"))]),
    Route::new(GET, "/v1/history", "Applications whose runs are recorded")
        .gives(&[(200, Gives::List(of::<RecordedApplication>))]),
    Route::new(GET, "/v1/history/{application}", "What is recorded and predicted of one")
        .gives(&[(200, Gives::Json(of::<ApplicationHistory>))])
        .refuses(&[400, 404]),
    // Contents.
    Route::new(PUT, "/v1/blobs/{digest}", "Uploads a content under its BLAKE3 hash")
        .takes(Takes::File)
        .gives(&[(204, Gives::Nothing)])
        .refuses(&[400, 408, 413, 500]),
    Route::new(
        GET,
        "/v1/blobs/{digest}",
        "A content, or a part of it: `Range: bytes=N-` or `bytes=N-M`",
    )
    .gives(&[(200, Gives::File(BYTES)), (206, Gives::File(BYTES))])
    .refuses(&[400, 404, 416, 500]),
    Route::new(GET, "/v1/blobs/{digest}/pieces", "The hashes of a content's pieces, for agents")
        .gives(&[(200, Gives::File(BYTES))])
        .refuses(&[400, 404, 500]),
    Route::new(PUT, "/v1/states/{digest}", "An agent keeps what a replica saved")
        .query(of::<blobs::Saved>)
        .takes(Takes::File)
        .gives(&[(204, Gives::Nothing)])
        .refuses(&[400, 408, 413, 500]),
    Route::new(GET, "/v1/states/{digest}", "What a replica saved")
        .gives(&[(200, Gives::File(BYTES))])
        .refuses(&[400, 404, 500]),
    // Datasets and views.
    Route::new(POST, "/v1/datasets", "Gives an uploaded manifest a name")
        .takes(Takes::Json(of::<DatasetRequest>))
        .gives(&[(201, Gives::Json(of::<DatasetStatus>))])
        .refuses(&[400, 404, 408, 409, 413, 500]),
    Route::new(GET, "/v1/datasets", "Datasets").gives(&[(200, Gives::List(of::<DatasetStatus>))]),
    Route::new(GET, "/v1/datasets/{name}", "A dataset, and how many copies its chunks have")
        .query(of::<datasets::Whose>)
        .gives(&[(200, Gives::Json(of::<DatasetStatus>))])
        .refuses(&[400, 404, 409]),
    Route::new(DELETE, "/v1/datasets/{name}", "Removes a dataset")
        .query(of::<datasets::Whose>)
        .gives(&[(200, Gives::Json(of::<DatasetStatus>))])
        .refuses(&[400, 404, 409, 500]),
    Route::new(GET, "/v1/datasets/{name}/chunks", "Chunks, and where copies of them are")
        .query(of::<datasets::Page>)
        .gives(&[(200, Gives::List(of::<ChunkStatus>))])
        .refuses(&[400, 404, 409]),
    Route::new(POST, "/v1/views", "Opens a view of a volume")
        .takes(Takes::Json(of::<NewView>))
        .gives(&[(201, Gives::Json(of::<ViewStatus>))])
        .refuses(&[400, 404, 408, 409, 413, 500]),
    Route::new(GET, "/v1/views", "Views").gives(&[(200, Gives::List(of::<ViewStatus>))]),
    Route::new(GET, "/v1/views/{view}", "A view")
        .gives(&[(200, Gives::Json(of::<ViewStatus>))])
        .refuses(&[404]),
    Route::new(DELETE, "/v1/views/{view}", "Ends a view")
        .gives(&[(200, Gives::Json(of::<ViewStatus>))])
        .refuses(&[404, 500]),
    Route::new(GET, "/v1/views/{view}/histogram", "How often values are in a view's volume")
        .gives(&[(200, Gives::Json(of::<Histogram>))])
        .refuses(&[404, 500]),
    Route::new(GET, "/v1/views/{view}/live", "A socket on which a view is turned and drawn")
        .gives(&[(101, Gives::Nothing)])
        .refuses(&[400, 404, 426]),
    Route::new(GET, "/v1/views/{view}/states", "What its client wants to see, without an end")
        .gives(&[(200, Gives::Text("text/event-stream"))])
        .refuses(&[404]),
    Route::new(GET, "/v1/frames/{token}", "Layers of a frame, for the agent that joins them")
        .gives(&[(200, Gives::File(BYTES))])
        .refuses(&[400, 409, 500]),
    Route::new(PUT, "/v1/frames/{token}", "An agent brings its part of a frame")
        .takes(Takes::File)
        .gives(&[(204, Gives::Nothing)])
        .refuses(&[400, 408, 413]),
    Route::new(PUT, "/v1/frames/{token}/kept", "An agent says that it keeps its layer of a frame")
        .takes(Takes::File)
        .gives(&[(200, Gives::File(BYTES))])
        .refuses(&[400, 408, 413]),
    // Streams.
    Route::new(GET, "/v1/control", "The socket of an agent")
        .gives(&[(101, Gives::Nothing)])
        .refuses(&[400, 426]),
    Route::new(GET, "/v1/watch", "A socket that tells of farm and jobs, as they change")
        .gives(&[(101, Gives::Nothing)])
        .refuses(&[400, 426]),
    Route::new(GET, "/v1/events", "What happens, as server-sent events without an end")
        .gives(&[(200, Gives::Text("text/event-stream"))]),
    Route::new(GET, "/v1/backup", "All that the broker keeps")
        .gives(&[(200, Gives::File(BYTES))])
        .refuses(&[409, 500]),
    // People.
    Route::new(GET, "/v1/me", "Who asks, and what is there for them")
        .gives(&[(200, Gives::Json(of::<Me>))]),
    Route::new(POST, "/v1/logins", "Makes a link that opens the pages once")
        .gives(&[(201, Gives::Json(of::<LoginLink>))]),
    Route::new(POST, "/v1/login", "Trades the secret of such a link for a cookie")
        .takes(Takes::Json(of::<LoginRequest>))
        .gives(&[(204, Gives::Nothing)])
        .refuses(&[400, 403, 408, 413]),
    Route::new(POST, "/v1/logins/page", "Whoever shows a token gets the cookie of a page")
        .gives(&[(200, Gives::Json(of::<Me>))]),
    Route::new(DELETE, "/v1/logins/page", "Takes the cookie away").gives(&[(204, Gives::Nothing)]),
    Route::new(GET, "/v1/people", "Whom the broker knows")
        .gives(&[(200, Gives::List(of::<PrincipalStatus>))]),
    Route::new(DELETE, "/v1/people/{id}", "Somebody may nothing any more")
        .gives(&[(200, Gives::Json(of::<PrincipalStatus>))])
        .refuses(&[400, 404, 409, 500]),
    Route::new(GET, "/v1/audit", "Who was invited, enrolled and revoked, by whom, and when")
        .gives(&[(200, Gives::Json(of::<Audit>))])
        .refuses(&[500]),
    Route::new(POST, "/v1/key", "Gives the broker another key; all sessions end")
        .gives(&[(200, Gives::Json(of::<String>))])
        .refuses(&[500]),
    Route::new(POST, "/v1/invitations", "Invites somebody")
        .takes(Takes::Json(of::<InvitationRequest>))
        .gives(&[(201, Gives::Json(of::<Invited>))])
        .refuses(&[400, 408, 413, 500]),
    Route::new(POST, "/v1/enrol", "Somebody who was invited shows a key")
        .takes(Takes::Json(of::<Enrolment>))
        .gives(&[(201, Gives::Json(of::<Enrolled>))])
        .refuses(&[400, 403, 408, 409, 413, 429, 500, 503]),
    Route::new(POST, "/v1/challenge", "Asks for something to sign")
        .takes(Takes::Json(of::<ChallengeRequest>))
        .gives(&[(200, Gives::Json(of::<Challenge>))])
        .refuses(&[400, 403, 404, 408, 413, 503]),
    Route::new(POST, "/v1/session", "Trades that, signed, for a session")
        .takes(Takes::Json(of::<SessionRequest>))
        .gives(&[(200, Gives::Json(of::<Session>))])
        .refuses(&[400, 403, 404, 408, 413, 503]),
];
