//! Whom this broker knows: principals by their keys, who was invited, and whose sessions go on.
//!
//! ```text
//!  data folder
//!  ├── broker.key    signs challenges and sessions
//!  ├── people.json   principals and invitations
//!  └── audit.jsonl   who let whom in, and out, line by line
//! ```
//!
//! An administrator invites; whoever has the invitation enrols a key, and gets sessions for it. What
//! a principal may and whose it is are looked up with each request, so that a revoked one may nothing
//! from that moment on.
//!
//! # Invariants
//! - What was answered is on the disk. A file that cannot be read lets nobody in: the broker does not
//!   start.
//! - A secret of an invitation is not kept, only its hash; it is good for as many keys as were said, until
//!   its time is over, and until whoever made it or joined with it is revoked.
//! - The name of a host belongs to the key that enrolled it first, until that one is revoked.
//! - The last administrator with a key is not revoked.

mod book;
mod pace;
mod pages;
mod uploads;

pub use book::BookError;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use gleaner_identity::{
    AnswerError, AuditEnd, KeyError, KeyPair, Pin, PublicKey, Purpose, SessionDesk, Shown,
};
use gleaner_protocol::people::{
    Challenge, ChallengeRequest, Enrolled, Enrolment, FarmPeople, FarmPrincipal, Identity,
    Invitation, InvitationRequest, PrincipalId, PrincipalStatus, Role, Session, SessionRequest,
};
use gleaner_protocol::{Digest, HostName, OwnerName};
use gleaner_serve::Sessions;
use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;
use tokio::sync::{broadcast, watch};

use crate::config::OwnerLimits;
use crate::limits::{
    INVITATION_S_MAX, INVITATION_USES_MAX, INVITATIONS_MAX, PRINCIPALS_MAX, SESSIONS_TOLD_MAX,
};
use crate::wall_clock::utc_ms;
use book::{Book, Invited, Principal};
pub(crate) use book::{Inviter, RevokedHost};
use pace::Pace;
pub(crate) use pages::LoginRefusal;
use pages::Logins;
pub(crate) use uploads::{TooMuch, Uploads};

/// Why a token that is a key is good for nothing.
const SHOWN_KEY: &str =
    "this broker knows no such token: it was revoked, or `gleaner join --token` made none";

/// Why somebody is not let in, or nobody is invited.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    #[error("there is no such invitation at this broker: ask whoever invited you for a new one")]
    NoInvitation,
    #[error("the invitation has been used as often as it may be: ask {by} for a new one")]
    UsedUp { by: String },
    #[error("the invitation ended {ago_s} s ago by the broker's clock: ask {by} for a new one")]
    Expired { by: String, ago_s: u64 },
    #[error("the proof is not one of the key that is to be enrolled")]
    Proof,
    #[error("this key is enrolled already, as {0}")]
    Known(PrincipalId),
    #[error("the agent of a host, or its hook, is to say the host's name")]
    NoHost,
    #[error(
        "the name {host} belongs to another key ({by}): choose another one (`--name`), or have an \
         administrator revoke that key (`gleaner revoke {by}`)"
    )]
    NameTaken { host: HostName, by: PrincipalId },
    #[error("there is no principal {0} at this broker (`gleaner people` lists them)")]
    Unknown(PrincipalId),
    #[error("the key of {0} was revoked: ask whoever runs this broker for an invitation")]
    Revoked(PrincipalId),
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error("{0} is the last administrator with a key: enrol another one first")]
    LastAdmin(PrincipalId),
    #[error("{what} is {value}, must be from 1 to {most}")]
    Range { what: &'static str, value: u64, most: u64 },
    #[error("{0}s work on no project: only submitters and viewers do")]
    NoProject(Role),
    #[error("{0}s sign what they say: join without --token")]
    NoToken(Role),
    #[error("{0}s compute nothing that could be trusted: only agents do")]
    NoTrust(Role),
    #[error(
        "{owner} has {most} hosts with keys, as many as may be: revoke those that are gone (`gleaner \
         people`), or have `hosts` of [limits] raised"
    )]
    TooManyHosts { owner: OwnerName, most: usize },
    #[error("this broker knows as many {0} as it can")]
    Full(&'static str),
    #[error("it cannot be written down: {0}")]
    Disk(#[from] BookError),
    #[error("the broker's key stays: {0}")]
    Key(#[from] KeyError),
}

/// Why a broker knows nobody, and so does not start.
#[derive(Debug, Error)]
pub enum PeopleError {
    /// The file of principals.
    #[error(transparent)]
    Book(#[from] BookError),
    /// The broker's own key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// All of them. Clones are of the same ones.
#[derive(Clone)]
pub(crate) struct People {
    desk: Arc<SessionDesk>,
    key_path: Arc<Path>,
    /// How often the key was made anew since the start.
    rotations: Arc<AtomicU64>,
    /// Hosts that an owner may have keys for.
    hosts_max: usize,
    pace: Option<Arc<Pace>>,
    uploads: Uploads,
    /// That of the broker's certificate, for those who are invited.
    pin: Option<Pin>,
    /// As it is on the disk.
    book: Arc<RwLock<Arc<Book>>>,
    /// Held while another one is written: nobody who reads waits for a disk.
    writing: Arc<Mutex<()>>,
    /// Tells who is revoked.
    revoked: broadcast::Sender<PrincipalId>,
    /// Tells of each change of the book.
    changed: watch::Sender<()>,
    /// Links to the pages that nobody has used yet.
    logins: Arc<Mutex<Logins>>,
}

/// `GET /v1/audit`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Audit {
    text: String,
    end: AuditEnd,
}

impl People {
    /// The file of principals and invitations.
    pub(crate) fn path_in(data_folder: &Path) -> PathBuf {
        data_folder.join("people.json")
    }

    /// The file of the broker's key.
    pub(crate) fn key_path_in(data_folder: &Path) -> PathBuf {
        data_folder.join("broker.key")
    }

    /// Reads what a data folder knows, or begins there.
    pub(crate) fn open(data_folder: &Path) -> Result<Self, PeopleError> {
        let key_path = Self::key_path_in(data_folder);
        // The key is made last: where it is there, so was the book.
        let book = Book::open(&Self::path_in(data_folder), !key_path.exists())?;
        let key = KeyPair::read_or_make(&key_path)?;
        let (revoked, _) = broadcast::channel(SESSIONS_TOLD_MAX);
        Ok(Self {
            pin: None,
            hosts_max: usize::MAX,
            pace: None,
            uploads: Uploads::of(0),
            desk: Arc::new(SessionDesk::of_broker(key)),
            key_path: key_path.into(),
            rotations: Arc::default(),
            book: Arc::new(RwLock::new(Arc::new(book))),
            writing: Arc::default(),
            revoked,
            changed: watch::Sender::new(()),
            logins: Arc::default(),
        })
    }

    /// As things stand.
    fn book(&self) -> Arc<Book> {
        Arc::clone(&self.book.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the book: on the disk first, then for everybody.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Book) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        self.change_in(&self.turn(), change)
    }

    /// Whoever writes, one at a time.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_in<T>(
        &self,
        _turn: &MutexGuard<'_, ()>,
        change: impl FnOnce(&mut Book) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut book = Book::clone(&self.book());
        let changed = change(&mut book)?;
        book.save()?;
        *self.book.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(book);
        self.changed.send_replace(());
        Ok(changed)
    }

    /// With the pin of the broker's certificate, which invitations tell.
    pub(crate) fn with_pin(self, pin: Option<Pin>) -> Self {
        Self { pin, ..self }
    }

    /// With what owners may at most.
    pub(crate) fn with_limits(self, limits: OwnerLimits) -> Self {
        let OwnerLimits { hosts, requests_per_s, upload_mib_a_day, .. } = limits;
        let pace = Pace::of(requests_per_s).map(Arc::new);
        Self { hosts_max: hosts as usize, pace, uploads: Uploads::of(upload_mib_a_day), ..self }
    }

    /// What owners upload.
    pub(crate) fn uploads(&self) -> &Uploads {
        &self.uploads
    }

    /// Whether an administrator has a key.
    pub(crate) fn has_admin(&self) -> bool {
        self.book().admins() > 0
    }

    /// Tells of everybody who is revoked from now on.
    pub(crate) fn revocations(&self) -> broadcast::Receiver<PrincipalId> {
        self.revoked.subscribe()
    }

    /// Makes an invitation.
    pub(crate) fn invite(
        &self,
        by: Inviter,
        request: &InvitationRequest,
    ) -> Result<Invitation, Refusal> {
        let InvitationRequest { role, ref owner, ref project, trusted, uses, valid_s, .. } =
            *request;
        if trusted && role != Role::Agent {
            return Err(Refusal::NoTrust(role));
        }
        if project.is_some() && !matches!(role, Role::Submitter | Role::Viewer) {
            return Err(Refusal::NoProject(role));
        }
        for (what, value, most) in [
            ("uses", u64::from(uses), u64::from(INVITATION_USES_MAX)),
            ("valid_s", valid_s, INVITATION_S_MAX),
        ] {
            if value == 0 || value > most {
                return Err(Refusal::Range { what, value, most });
            }
        }
        let (id, secret) = (random_text::<4>(), random_text::<16>());
        let now_ms = utc_ms();
        self.change(|book| {
            book.forget_old(now_ms);
            if book.invitations.len() >= INVITATIONS_MAX {
                return Err(Refusal::Full("invitations"));
            }
            let of = project.as_ref().map(|of| format!(" in project {of}")).unwrap_or_default();
            let how = if trusted { "trusted " } else { "" };
            let on = format!("{uses} as {how}{role} of {owner}{of}, invitation {id}");
            book.note(&by.name, "invite", &on)?;
            let invited = Invited {
                secret: Digest::of(secret.as_bytes()),
                role,
                owner: owner.clone(),
                project: project.clone(),
                trusted,
                uses_left: uses,
                ends_ms: now_ms + valid_s * 1_000,
                by,
            };
            book.invitations.insert(id.clone(), invited);
            Ok(())
        })?;
        Ok(Invitation { id, secret, pin: self.pin })
    }

    /// The role of whoever joins with an invitation, where that is good.
    pub(crate) fn role_of(&self, invitation: &Invitation) -> Result<Role, Refusal> {
        Ok(self.book().invited(invitation, utc_ms())?.role)
    }

    /// Enrols a key.
    pub(crate) fn enrol(&self, enrolment: &Enrolment) -> Result<Enrolled, Refusal> {
        let Enrolment { invitation, host, public_key, proof, as_token } = enrolment;
        let key: PublicKey = public_key.parse().map_err(|_| Refusal::Proof)?;
        let now_ms = utc_ms();
        // Strangers cost no more than this.
        self.book().invited(invitation, now_ms)?;
        if key.check(Purpose::Enrol, proof).as_deref() != Ok(invitation.id.as_str()) {
            return Err(Refusal::Proof);
        }
        let id = key.id();
        self.change(|book| {
            let Invited { role, owner, project, trusted, .. } =
                book.invited(invitation, now_ms)?.clone();
            // Where somebody joins who is of no host says nothing.
            let host = host.as_ref().filter(|_| role.is_of_host());
            if role.is_of_host() && host.is_none() {
                return Err(Refusal::NoHost);
            }
            if let Some((host, by)) = host.and_then(|host| Some((host, book.of_host(role, host)?)))
            {
                return Err(Refusal::NameTaken { host: host.clone(), by: by.clone() });
            }
            if let Some((host, by)) = host.and_then(|host| Some((host, book.near(&owner, host)?))) {
                return Err(Refusal::NameTaken { host: host.clone(), by: by.clone() });
            }
            if role == Role::Agent && book.hosts_of(&owner) >= self.hosts_max {
                return Err(Refusal::TooManyHosts { owner, most: self.hosts_max });
            }
            if *as_token && matches!(role, Role::Agent | Role::Monitor) {
                return Err(Refusal::NoToken(role));
            }
            if book.principals.contains_key(&id) {
                return Err(Refusal::Known(id.clone()));
            }
            book.forget_old(now_ms);
            if book.principals.len() >= PRINCIPALS_MAX {
                return Err(Refusal::Full("principals"));
            }
            let principal = Principal {
                role,
                owner,
                project,
                host: host.cloned(),
                trusted,
                public_key: key.to_string(),
                as_token: *as_token || role == Role::Hook,
                invitation: invitation.id.clone(),
                made_ms: now_ms,
                revoked_ms: None,
            };
            let status = principal.status(&id);
            let at = status.host.as_ref().map(|host| format!(" on {host}")).unwrap_or_default();
            let on = format!("as {role}{at}, invitation {}", invitation.id);
            book.note(&format!("{} ({id})", status.owner), "enrol", &on)?;
            book.principals.insert(id.clone(), principal);
            if let Some(invited) = book.invitations.get_mut(&invitation.id) {
                invited.uses_left -= 1;
            }
            let monitor_keys = match role {
                Role::Agent => book.monitor_keys(),
                _ => Vec::new(),
            };
            Ok(Enrolled { principal: status, monitor_keys })
        })
    }

    /// What somebody who wants a session has to sign.
    pub(crate) fn challenge(&self, request: &ChallengeRequest) -> Result<Challenge, Refusal> {
        let id = request.id.clone();
        self.book().active(&id)?;
        Ok(self.desk.challenge(id, now_s()))
    }

    /// Gives a session to whoever has signed.
    pub(crate) fn session(&self, request: &SessionRequest) -> Result<Session, Refusal> {
        let id = self.desk.asks(request, now_s())?;
        let public_key = self.book().active(&id)?.public_key.clone();
        let key: PublicKey = public_key.parse().map_err(|_| Refusal::Proof)?;
        Ok(self.desk.session(id, request, &key, now_s())?)
    }

    fn key(&self) -> Arc<KeyPair> {
        self.desk.key()
    }

    /// Has sessions signed with another key from now on: those of the one before have ended.
    pub(crate) fn rotate_key(&self, by: &str) -> Result<PublicKey, Refusal> {
        let key = KeyPair::generate()?;
        let public = key.public().clone();
        // One after the other, in memory as on the disk.
        let turn = self.turn();
        let on = format!("the broker's key, to {}", public.id());
        self.change_in(&turn, |book| Ok(book.note(by, "rotate", &on)?))?;
        key.replace(&self.key_path)?;
        self.desk.set_key(key);
        drop(turn);
        *self.logins.lock().unwrap_or_else(PoisonError::into_inner) = Logins::default();
        self.rotations.fetch_add(1, Ordering::Release);
        // It wakes whoever waits for a revocation; nobody has this name.
        let _ = self.revoked.send(public.id());
        Ok(public)
    }

    /// Everybody, in the order of their names.
    pub(crate) fn list(&self) -> Vec<PrincipalStatus> {
        let book = self.book();
        book.principals.iter().map(|(id, principal)| principal.status(id)).collect()
    }

    /// Somebody may nothing any more, from now on: neither what they were invited with is good any
    /// longer, nor what they invited others with.
    pub(crate) fn revoke(&self, by: &str, id: &PrincipalId) -> Result<PrincipalStatus, Refusal> {
        let status = self.change(|book| {
            let (role, invitation) = {
                let principal = book.active(id)?;
                (principal.role, principal.invitation.clone())
            };
            if role == Role::Admin && book.admins() == 1 {
                return Err(Refusal::LastAdmin(id.clone()));
            }
            for (of, invited) in &mut book.invitations {
                if *of == invitation || invited.by.id.as_ref() == Some(id) {
                    invited.uses_left = 0;
                }
            }
            let principal = book.principals.get_mut(id).ok_or(Refusal::Unknown(id.clone()))?;
            principal.revoked_ms = Some(utc_ms());
            let status = principal.status(id);
            let on = format!("{role} of {} ({id})", status.owner);
            book.note(by, "revoke", &on)?;
            Ok(status)
        })?;
        // Nobody may be listening.
        let _ = self.revoked.send(id.clone());
        Ok(status)
    }

    /// Ends when somebody is revoked, or the broker has another key; never where it is nobody with a key.
    pub(crate) async fn until_revoked(self, identity: Option<Identity>) {
        let Some(Identity { id, .. }) = identity else { return std::future::pending().await };
        let mut revocations = self.revocations();
        let rotations = self.rotations.load(Ordering::Acquire);
        // It may have been in the moment before.
        while self.is_active(&id) && self.rotations.load(Ordering::Acquire) == rotations {
            // Who missed some looks for itself.
            let _ = revocations.recv().await;
        }
    }

    /// Adds to that list what was done to something that is kept elsewhere.
    pub(crate) fn note(&self, by: &str, what: &str, on: &str) -> Result<(), Refusal> {
        self.change(|book| Ok(book.note(by, what, on)?))
    }

    /// The list of what was done, and where it ends.
    pub(crate) fn audit(&self) -> Result<Audit, Refusal> {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let book = self.book();
        Ok(Audit { text: book.audit_text()?, end: book.audit })
    }

    /// Whether somebody is known and not revoked.
    pub(crate) fn is_active(&self, id: &PrincipalId) -> bool {
        self.book().active(id).is_ok()
    }

    /// Somebody, where they are known and not revoked; else why not.
    fn identity(&self, id: &PrincipalId) -> Result<Identity, String> {
        let found = self.book().active(id).map(|principal| principal.identity(id));
        found.map_err(|refusal| refusal.to_string())
    }

    /// Whom a farm's monitor is to know.
    pub(crate) fn of_farm(&self) -> FarmPeople {
        let book = self.book();
        let is_of_farm = |role| !matches!(role, Role::Submitter | Role::Monitor);
        let people = book.active_ones().filter(|(_, of)| is_of_farm(of.role));
        let people: Vec<FarmPrincipal> = people.map(|(_, of)| of.of_farm()).collect();
        let text = serde_json::to_vec(&people).expect("our own types serialise");
        FarmPeople { version: Digest::of(&text).to_string(), people }
    }

    /// Tells of each change of who is known, from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Owners of hosts for whom whoever runs the broker vouches.
    pub(crate) fn vouched(&self) -> BTreeSet<OwnerName> {
        self.book().vouched()
    }

    /// Hosts whose keys were revoked and that have no other.
    pub(crate) fn revoked_hosts(&self) -> Vec<RevokedHost> {
        self.book().revoked_hosts()
    }

    /// The hosts with keys, where hosts are told apart by these.
    pub(crate) fn hosts_with_keys(&self) -> Option<BTreeSet<HostName>> {
        let book = self.book();
        let mut agents = book.active_ones().filter(|(_, of)| of.role == Role::Agent).peekable();
        agents.peek().is_some().then(|| agents.filter_map(|(_, of)| of.host.clone()).collect())
    }

    /// Whether hosts are told apart by their keys here.
    pub(crate) fn has_agents(&self) -> bool {
        self.book().active_ones().any(|(_, of)| of.role == Role::Agent)
    }

    /// Whether a name belongs to the agent that has some key, so that nobody else may have it.
    pub(crate) fn is_kept(&self, host: &HostName) -> bool {
        self.book().of_host(Role::Agent, host).is_some()
    }
}

impl Sessions for People {
    fn who(&self, token: &str) -> Option<Result<Identity, String>> {
        let shown = match self.desk.who(token, now_s())? {
            Ok(shown) => shown,
            Err(end) => return Some(Err(end.to_string())),
        };
        Some(match shown {
            Shown::Session(id) => self.identity(&id),
            Shown::Key(key) if self.book().shows_its_key(&key) => self.identity(&key.id()),
            Shown::Key(_) => Err(SHOWN_KEY.to_owned()),
        })
    }

    fn whose_page(&self, cookies: &str) -> Option<Result<Identity, String>> {
        self.page_of(cookies)
    }

    fn admit(&self, identity: &Identity) -> Result<(), Duration> {
        match (&self.pace, identity.role) {
            (Some(pace), Role::Submitter | Role::Viewer | Role::Operator) => {
                pace.count(&identity.owner)
            }
            _ => Ok(()),
        }
    }
}

fn now_s() -> u64 {
    utc_ms() / 1_000
}

pub(crate) fn random_text<const BYTES: usize>() -> String {
    let mut bytes = [0; BYTES];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(got, Ok(BYTES), "the kernel gives as few random bytes as these at once");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
