//! `/v1/people`, and how somebody becomes one of them: invitations, enrolments, sessions.

use gleaner_identity::{AnswerError, InvitationLine};
use gleaner_protocol::people::{
    self, ChallengeRequest, Enrolment, InvitationRequest, Invited, PrincipalId, PrincipalStatus,
    SessionRequest,
};
use gleaner_scheduling::Core;
use gleaner_serve::{Problem, any_of, body_bytes};
use schemars::JsonSchema;
use serde::Deserialize;
use warp::filters::BoxedFilter;
use warp::http::{StatusCode, Uri};
use warp::reply::Response;
use warp::{Filter, Reply};

use super::asker::{Asker, asker};
use super::jobs::parse_id;
use super::{Api, body, handler, handler_of, json, parse};
use crate::driver::Command;
use crate::limits::{FARM_PEOPLE_WAIT, OPEN_BODY_BYTES_MAX};
use crate::people::{People, Refusal};

/// The longest address that a link may have.
const ADDRESS_BYTES_MAX: usize = 300;

/// Paths that are open to all: what comes there proves itself.
pub(crate) const OPEN: &[&str] = &["/v1/enrol", "/v1/challenge", "/v1/session", "/v1/login"];

impl Api {
    pub(super) fn people_routes(&self) -> BoxedFilter<(Response,)> {
        let list = warp::path!("v1" / "people").and(warp::get());
        let audit = warp::path!("v1" / "audit").and(warp::get());
        let one = warp::path!("v1" / "people" / String).and(warp::delete()).and(asker());
        let one = one.map(|id, who| (id, who));
        let rotated = warp::path!("v1" / "key").and(warp::post()).and(asker());
        let invitations = warp::path!("v1" / "invitations").and(warp::post());
        let invitations = invitations.and(asker()).and(body()).map(|who, body| (who, body));
        let body_of_anybody = || body_bytes(OPEN_BODY_BYTES_MAX);
        let enrolled = warp::path!("v1" / "enrol").and(warp::post()).and(body_of_anybody());
        let challenged = warp::path!("v1" / "challenge").and(warp::post()).and(body_of_anybody());
        let answered = warp::path!("v1" / "session").and(warp::post()).and(body_of_anybody());
        let of_farm = warp::path!("v1" / "farm" / "people").and(warp::get());
        let of_farm =
            of_farm.and(asker()).and(warp::query::<Known>()).map(|who, known| (who, known));
        any_of([
            handler(list, self, |api, ()| async move { Ok(json(&api.people.list())) }),
            handler(audit, self, |api, ()| async move {
                Ok(json(&api.of_people(People::audit).await?))
            }),
            handler_of(of_farm, self, of_farm_next),
            handler_of(rotated, self, rotate),
            handler_of(one, self, revoke),
            handler_of(invitations, self, invite),
            handler_of(enrolled, self, enrol),
            handler_of(challenged, self, challenge),
            handler_of(answered, self, session),
        ])
    }

    /// Tells the driver that somebody has a key, or has none any more. It may be gone, where the broker
    /// ends: its next start looks by itself.
    async fn tell_keys(&self) {
        let _ = self.driver.send(Command::KeysChanged(self.people.clone())).await;
    }

    /// Does what may wait for a disk where it holds up nobody.
    async fn of_people<T: Send + 'static>(
        &self,
        work: impl FnOnce(&People) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Problem> {
        let people = self.people.clone();
        let done = tokio::task::spawn_blocking(move || work(&people)).await;
        done.map_err(|_| Problem::internal())?.map_err(Problem::from)
    }
}

/// Which list of people somebody knows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    /// Its version. The answer comes when there is another one, or after some time.
    known: Option<String>,
}

async fn of_farm_next(
    api: Api,
    (who, Known { known }): (Asker, Known),
) -> Result<Response, Problem> {
    let mut changes = api.people.changes();
    let until = tokio::time::sleep(FARM_PEOPLE_WAIT.into());
    tokio::pin!(until);
    loop {
        let people = api.people.of_farm();
        if known.as_ref() != Some(&people.version) {
            return Ok(json(&people));
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = &mut until => return Ok(json(&people)),
            () = api.people.clone().until_revoked(who.identity()) => {
                return Err(Problem::new(StatusCode::UNAUTHORIZED, "session", "the key was revoked"));
            }
        }
    }
}

async fn invite(api: Api, (who, body): (Asker, bytes::Bytes)) -> Result<Response, Problem> {
    let request: InvitationRequest = parse(&body, "invitation")?;
    let (by, address) = (who.inviter(), request.address.clone());
    let is_one = |of: &String| of.len() <= ADDRESS_BYTES_MAX && of.parse::<Uri>().is_ok();
    if address.as_ref().is_some_and(|of| !is_one(of)) {
        return Err(Problem::malformed("address: expected http(s)://HOST:PORT".to_owned()));
    }
    let invitation = api.of_people(move |people| people.invite(by, &request)).await?;
    let link =
        address.and_then(|broker| InvitationLine { broker, invitation: invitation.clone() }.link());
    let invited = Invited { invitation, link };
    Ok(warp::reply::with_status(json(&invited), StatusCode::CREATED).into_response())
}

async fn enrol(api: Api, body: bytes::Bytes) -> Result<Response, Problem> {
    let enrolment: Enrolment = parse(&body, "enrolment")?;
    // Strangers and people who are on no host ask the core nothing.
    let is_agent = api.people.role_of(&enrolment.invitation)? == people::Role::Agent;
    if let Some(host) = enrolment.host.clone().filter(|_| is_agent) {
        // Of a host that is here somebody would take more than its name.
        let name = host.clone();
        let is_here =
            move |core: &Core| core.farm().host_named(&host).is_some_and(|of| of.connected);
        if api.read(is_here).await? {
            let why = format!(
                "a host named {name} is connected: stop its agent first if it is this one, or choose \
                 another name (`--name`)"
            );
            return Err(Problem::new(StatusCode::CONFLICT, "connected", why));
        }
    }
    let enrolled = api.of_people(move |people| people.enrol(&enrolment)).await?;
    api.tell_keys().await;
    let PrincipalStatus { id, role, owner, .. } = &enrolled.principal;
    tracing::info!(%id, %role, %owner, "enrolled");
    Ok(warp::reply::with_status(json(&enrolled), StatusCode::CREATED).into_response())
}

async fn challenge(api: Api, body: bytes::Bytes) -> Result<Response, Problem> {
    let request: ChallengeRequest = parse(&body, "request for a challenge")?;
    Ok(json(&api.people.challenge(&request)?))
}

async fn session(api: Api, body: bytes::Bytes) -> Result<Response, Problem> {
    let request: SessionRequest = parse(&body, "request for a session")?;
    Ok(json(&api.people.session(&request)?))
}

async fn rotate(api: Api, who: Asker) -> Result<Response, Problem> {
    let key = api.of_people(move |people| people.rotate_key(&who.name())).await?;
    tracing::warn!(id = %key.id(), "the broker has another key");
    Ok(json(&key.to_string()))
}

async fn revoke(api: Api, (id, who): (String, Asker)) -> Result<Response, Problem> {
    let id: PrincipalId = parse_id(&id)?;
    let status = api.of_people(move |people| people.revoke(&who.name(), &id)).await?;
    api.tell_keys().await;
    tracing::warn!(id = %status.id, role = %status.role, owner = %status.owner, "revoked");
    Ok(json(&status))
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let (status, code) = match &refusal {
            Refusal::NoInvitation => (StatusCode::FORBIDDEN, "no_invitation"),
            Refusal::UsedUp { .. } => (StatusCode::FORBIDDEN, "used_up"),
            Refusal::Expired { .. } => (StatusCode::FORBIDDEN, "expired"),
            Refusal::Proof => (StatusCode::FORBIDDEN, "proof"),
            Refusal::Answer(AnswerError::Challenge) => (StatusCode::FORBIDDEN, "challenge"),
            Refusal::Answer(AnswerError::Proof) => (StatusCode::FORBIDDEN, "proof"),
            Refusal::Revoked(_) => (StatusCode::FORBIDDEN, "revoked"),
            Refusal::NoTrust(_) => (StatusCode::BAD_REQUEST, "trusted"),
            Refusal::NoProject(_) => (StatusCode::BAD_REQUEST, "project"),
            Refusal::NoHost => (StatusCode::BAD_REQUEST, "host"),
            Refusal::NoToken(_) => (StatusCode::BAD_REQUEST, "as_token"),
            Refusal::Range { .. } => (StatusCode::BAD_REQUEST, "out-of-range"),
            Refusal::Unknown(_) => (StatusCode::NOT_FOUND, "not_found"),
            Refusal::Known(_) => (StatusCode::CONFLICT, "known"),
            Refusal::NameTaken { .. } => (StatusCode::CONFLICT, "name_taken"),
            Refusal::LastAdmin(_) => (StatusCode::CONFLICT, "last_admin"),
            Refusal::TooManyHosts { .. } => (StatusCode::TOO_MANY_REQUESTS, "too_many_hosts"),
            Refusal::Full(_) => (StatusCode::SERVICE_UNAVAILABLE, "too_many"),
            Refusal::Disk(_) | Refusal::Key(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        };
        Self::new(status, code, refusal.to_string())
    }
}
