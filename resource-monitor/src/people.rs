//! Whom the monitor knows by their keys: those of whom its broker has told.
//!
//! The monitor gives sessions of its own to these keys. So agents, hooks and operators speak to it while
//! the broker is away, and with `state_dir` after a restart of the monitor, too. Some sign nothing, and show
//! their key as a token: hooks, and programs that read figures.
//!
//! # Invariants
//! - Who is not on the newest list may nothing, from the moment when it comes.
//! - An agent and a hook speak of their own host alone.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use gleaner_identity::{AnswerError, KeyPair, PublicKey, SessionDesk, Shown};
use gleaner_protocol::HostName;
use gleaner_protocol::people::{
    Challenge, ChallengeRequest, FarmPeople, FarmPrincipal, Identity, PrincipalId, Role, Session,
    SessionRequest,
};
use gleaner_serve::{Problem, Sessions};
use tracing::{info, warn};
use warp::http::StatusCode;

use crate::state_folder::StateFolder;
use crate::wall_clock::wall_clock;

/// All of them.
#[derive(Debug)]
pub(crate) struct People {
    desk: SessionDesk,
    known: RwLock<Arc<Known>>,
    state: Option<Arc<StateFolder>>,
}

#[derive(Debug, Default)]
struct Known {
    /// Of the list; none where there is none yet.
    version: Option<String>,
    people: BTreeMap<PrincipalId, Person>,
}

/// One of them.
#[derive(Debug, Clone)]
struct Person {
    key: PublicKey,
    identity: Identity,
    /// Whether they show their key as a token.
    as_token: bool,
}

impl Known {
    fn of(list: FarmPeople) -> Self {
        let people = list.people.into_iter().filter_map(|of| {
            let FarmPrincipal { role, owner, host, public_key, as_token } = of;
            // One that is no key is nobody's.
            let key: PublicKey = public_key.parse().ok()?;
            let id = key.id();
            let identity = Identity { id: id.clone(), role, owner, project: None, host };
            Some((id, Person { key, identity, as_token }))
        });
        Self { version: Some(list.version), people: people.collect() }
    }
}

impl People {
    /// Those of whom the monitor before knew. Sessions are signed with `key`.
    pub(crate) fn new(key: KeyPair, state: Option<Arc<StateFolder>>) -> Self {
        let kept = state.as_ref().and_then(|state| state.people());
        let known = kept.map(Known::of).unwrap_or_default();
        Self { desk: SessionDesk::of_monitor(key), known: RwLock::new(Arc::new(known)), state }
    }

    fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The version of the list that is known, if any is.
    pub(crate) fn version(&self) -> Option<String> {
        self.known().version.clone()
    }

    /// Knows those of this list from now on, and nobody else. It holds before it is written down.
    pub(crate) fn learn(&self, list: FarmPeople) {
        let known = Known::of(list.clone());
        info!(people = known.people.len(), "the broker tells whom it knows");
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
        if let Some(state) = &self.state
            && let Err(error) = state.keep_people(&list)
        {
            warn!("whom the broker knows is not kept over a restart of the monitor: {error}");
        }
    }

    /// What somebody who wants a session has to sign.
    pub(crate) fn challenge(&self, request: ChallengeRequest) -> Result<Challenge, Problem> {
        self.key_of(&request.id)?;
        Ok(self.desk.challenge(request.id, now_s()))
    }

    /// Gives a session to whoever has signed.
    pub(crate) fn session(&self, request: &SessionRequest) -> Result<Session, Problem> {
        let refuse =
            |error: AnswerError| Problem::new(StatusCode::FORBIDDEN, "proof", error.to_string());
        let id = self.desk.asks(request, now_s()).map_err(refuse)?;
        let key = self.key_of(&id)?;
        self.desk.session(id, request, &key, now_s()).map_err(refuse)
    }

    fn key_of(&self, id: &PrincipalId) -> Result<PublicKey, Problem> {
        let known = self.known();
        let found = known.people.get(id).map(|of| of.key.clone());
        let refuse = || Problem::new(StatusCode::FORBIDDEN, "unknown_key", self.unknown(id));
        found.ok_or_else(refuse)
    }

    fn unknown(&self, id: &PrincipalId) -> String {
        match self.version() {
            Some(_) => format!(
                "this monitor does not know the key of {id}: it was revoked, or is a submitter's, or the \
                 monitor's broker is another one than it joined"
            ),
            None => format!(
                "this monitor does not know the key of {id}: its broker has not told it yet whom it knows"
            ),
        }
    }

    /// Whether somebody may speak of a host: those who are of a host speak of that one.
    pub(crate) fn speaks_of(&self, who: Option<&Identity>, host: &HostName) -> Result<(), Problem> {
        let Some((role, own)) = who.and_then(|who| Some((who.role, who.host.as_ref()?))) else {
            return Ok(());
        };
        // A farm's hooks may call it by more or less than its agent does, unless that is another's name.
        let is_anothers = || {
            let known = self.known();
            let mut hosts = known.people.values().filter_map(|of| of.identity.host.as_ref());
            hosts.any(|other| other != own && other.may_be(host))
        };
        if own == host || (role == Role::Hook && own.may_be(host) && !is_anothers()) {
            return Ok(());
        }
        let error = format!("the key is that of {own}, which says nothing of {host}");
        Err(Problem::new(StatusCode::FORBIDDEN, "another_host", error))
    }

    fn person(&self, id: &PrincipalId) -> Result<Person, String> {
        self.known().people.get(id).cloned().ok_or_else(|| self.unknown(id))
    }
}

impl Sessions for People {
    fn are_known(&self) -> bool {
        self.known().version.is_some()
    }

    fn who(&self, token: &str) -> Option<Result<Identity, String>> {
        let shown = match self.desk.who(token, now_s())? {
            Ok(shown) => shown,
            Err(end) => return Some(Err(end.to_string())),
        };
        let (id, key) = match &shown {
            Shown::Session(id) => (id.clone(), None),
            Shown::Key(key) => (key.id(), Some(key)),
        };
        Some(self.person(&id).and_then(|person| match key {
            Some(key) if !person.as_token || person.key != *key => {
                Err("the key of this one is shown to nobody, and this one was".into())
            }
            _ => Ok(person.identity),
        }))
    }
}

fn now_s() -> u64 {
    u64::try_from(wall_clock().as_second()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use gleaner_identity::Purpose;

    use super::*;

    fn key() -> KeyPair {
        KeyPair::generate().expect("made")
    }

    fn one(role: Role, key: &KeyPair, host: Option<&str>) -> FarmPrincipal {
        FarmPrincipal {
            role,
            owner: "farm".parse().expect("a name"),
            host: host.map(|host| HostName::new(host).expect("a name")),
            public_key: key.public().to_string(),
            as_token: role == Role::Hook,
        }
    }

    fn list(version: &str, people: Vec<FarmPrincipal>) -> FarmPeople {
        FarmPeople { version: version.into(), people }
    }

    /// A session of a key, or why there is none.
    fn session(people: &People, key: &KeyPair) -> Result<String, Problem> {
        let id = key.public().id();
        let challenge = people.challenge(ChallengeRequest { id })?.challenge;
        let proof = key.sign(Purpose::AnswerToMonitor, &challenge);
        Ok(people.session(&SessionRequest { challenge, proof })?.token)
    }

    #[test]
    fn who_is_on_the_newest_list_may_speak_and_nobody_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = || Some(Arc::new(StateFolder::open(folder.path()).expect("it opens")));
        let people = People::new(key(), state());
        let (agent, hook, other) = (key(), key(), key());
        assert!(session(&people, &agent).is_err(), "nobody is known yet");
        let of_host = [one(Role::Agent, &agent, Some("one")), one(Role::Hook, &hook, Some("one"))];
        people.learn(list("first", of_host.to_vec()));
        let token = session(&people, &agent).expect("it is known");
        let who = |people: &People, token: &str| people.who(token).map(|who| who.map(|of| of.role));
        assert_eq!(who(&people, &token), Some(Ok(Role::Agent)));
        assert_eq!(who(&people, &hook.token()), Some(Ok(Role::Hook)));
        assert!(session(&people, &other).is_err());
        for stranger in [other.token(), agent.token()] {
            assert!(matches!(who(&people, &stranger), Some(Err(_))), "no hook has this key");
        }
        assert_eq!(who(&people, "a token of a file"), None);

        // The next one knows them without the broker; sessions of this one are over.
        drop(people);
        let people = People::new(key(), state());
        assert_eq!(people.version().as_deref(), Some("first"));
        assert!(matches!(who(&people, &token), Some(Err(_))));
        let token = session(&people, &agent).expect("it is known");
        assert_eq!(who(&people, &hook.token()), Some(Ok(Role::Hook)));
        // Both are revoked.
        people.learn(list("second", Vec::new()));
        assert!(matches!(who(&people, &token), Some(Err(why)) if why.contains("revoked")));
        assert!(matches!(who(&people, &hook.token()), Some(Err(_))));
        assert!(session(&people, &agent).is_err());
    }

    #[test]
    fn a_host_speaks_of_itself_alone() {
        let host = |name| HostName::new(name).expect("a name");
        let people = People::new(key(), None);
        let (agent, hook) = (key(), key());
        let own = [
            one(Role::Agent, &agent, Some("render042")),
            one(Role::Hook, &hook, Some("render042")),
        ];
        people.learn(list("first", own.to_vec()));
        let says = |role, name| {
            let identity = Identity {
                id: key().public().id(),
                role,
                owner: "farm".parse().expect("a name"),
                project: None,
                host: Some(host("render042")),
            };
            people.speaks_of(Some(&identity), &host(name)).is_ok()
        };
        for own in ["render042", "render042.farm.local", "RENDER042"] {
            assert!(says(Role::Hook, own), "a farm may call it {own}");
            assert_eq!(says(Role::Agent, own), own == "render042", "an agent knows its name");
        }
        // A name that may mean another host as well is not its own.
        let other = one(Role::Agent, &key(), Some("render042.lab"));
        people.learn(list("second", own.into_iter().chain([other]).collect()));
        assert!(says(Role::Hook, "render042"));
        for others in
            ["render043", "render042.lab", "RENDER042.LAB", "render042.lab.farm", "RENDER042"]
        {
            assert!(!says(Role::Hook, others) && !says(Role::Agent, others), "{others}");
        }
        assert!(people.speaks_of(None, &host("render043")).is_ok());
    }
}
