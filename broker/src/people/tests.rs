//! Whom a broker lets in.

use std::fs;

use gleaner_protocol::ProjectName;

use super::*;

struct Head {
    people: People,
    folder: tempfile::TempDir,
}

impl Head {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { people: People::open(folder.path()).expect("a new one"), folder }
    }

    fn starts_again(&mut self) {
        self.people = People::open(self.folder.path()).expect("what it wrote");
    }

    fn invites(&self, role: Role, uses: u32) -> Invitation {
        let owner = "anna".parse().expect("a plain name");
        let request = InvitationRequest {
            role,
            owner,
            project: None,
            trusted: false,
            uses,
            valid_s: 60,
            address: None,
        };
        self.people.invite(root(), &request).expect("a plain request")
    }

    /// Whoever has `key` enrols.
    fn enrols(
        &self,
        invitation: &Invitation,
        key: &KeyPair,
        host: Option<&str>,
    ) -> Result<PrincipalStatus, Refusal> {
        self.enrolled(invitation, key, host).map(|enrolled| enrolled.principal)
    }

    /// The same, and what is told of others then.
    fn enrolled(
        &self,
        invitation: &Invitation,
        key: &KeyPair,
        host: Option<&str>,
    ) -> Result<Enrolled, Refusal> {
        self.people.enrol(&Enrolment {
            invitation: invitation.clone(),
            host: host.map(|name| name.parse().expect("a plain name")),
            public_key: key.public().to_string(),
            proof: key.sign(Purpose::Enrol, &invitation.id),
            as_token: false,
        })
    }

    fn session(&self, key: &KeyPair) -> Result<String, Refusal> {
        let id = key.public().id();
        let Challenge { challenge } = self.people.challenge(&ChallengeRequest { id })?;
        let proof = key.sign(Purpose::Answer, &challenge);
        Ok(self.people.session(&SessionRequest { challenge, proof })?.token)
    }

    fn role(&self, token: &str) -> Result<Role, String> {
        self.people.who(token).expect("a session").map(|identity| identity.role)
    }
}

fn root() -> Inviter {
    Inviter { name: "root".into(), id: None }
}

/// What a challenge or a session of this one says, for so many seconds from now on.
fn claims(id: PrincipalId, for_s: u64) -> String {
    serde_json::json!({ "id": id, "until_s": now_s() + for_s }).to_string()
}

fn key() -> KeyPair {
    KeyPair::generate().expect("made")
}

#[test]
fn who_is_invited_enrols_a_key_and_is_known_by_it_also_after_a_restart() {
    let mut head = Head::new();
    let (one, other) = (key(), key());
    let invitation = head.invites(Role::Submitter, 1);
    let status = head.enrols(&invitation, &one, None).expect("invited");
    assert_eq!((status.role, status.owner.as_str()), (Role::Submitter, "anna"));
    let refusal = head.enrols(&invitation, &other, None).expect_err("used up").to_string();
    assert!(refusal.contains("used as often") && refusal.contains("root"), "{refusal}");
    let token = head.session(&one).expect("known");
    assert_eq!(head.role(&token), Ok(Role::Submitter));
    assert!(matches!(head.session(&other), Err(Refusal::Unknown(_))));
    head.starts_again();
    assert_eq!(head.role(&token), Ok(Role::Submitter), "a session outlives a restart");
    assert_eq!(head.people.list(), [status]);
    // Another broker's sessions are nothing here.
    let elsewhere = Head::new();
    assert!(elsewhere.role(&token).is_err());
    assert_eq!(elsewhere.people.who("0123456789abcdef"), None, "this is a token");
}

#[test]
fn agents_are_told_the_keys_of_the_monitors_that_there_are() {
    let head = Head::new();
    let told = |role, key: &KeyPair, host| {
        let enrolled = head.enrolled(&head.invites(role, 1), key, host).expect("invited");
        enrolled.monitor_keys
    };
    assert_eq!(told(Role::Agent, &key(), Some("one")), [] as [String; 0]);
    let (old, monitor) = (key(), key());
    assert_eq!(told(Role::Monitor, &old, None), [] as [String; 0]);
    assert_eq!(told(Role::Monitor, &monitor, None), [] as [String; 0], "of agents");
    head.people.revoke("root", &old.public().id()).expect("known");
    assert_eq!(told(Role::Agent, &key(), Some("two")), [monitor.public().to_string()]);
}

#[test]
fn an_invitation_says_which_way_it_is_not_good() {
    let head = Head::new();
    let invitation = head.invites(Role::Viewer, 2);
    let secret = "0".repeat(32);
    let mistyped = Invitation { secret, ..invitation.clone() };
    assert!(matches!(head.enrols(&mistyped, &key(), None), Err(Refusal::NoInvitation)));
    let ended = head.people.change(|book| {
        let invited = book.invitations.get_mut(&invitation.id).expect("it is there");
        invited.ends_ms = utc_ms() - 5_000;
        Ok(())
    });
    ended.expect("written");
    let refusal = head.enrols(&invitation, &key(), None).expect_err("it has ended").to_string();
    assert!(refusal.contains("ended 5 s ago") && refusal.contains("root"), "{refusal}");
    for (uses, valid_s) in [(0, 60), (1, 0), (INVITATION_USES_MAX + 1, 60), (1, u64::MAX)] {
        let owner = "anna".parse().expect("a plain name");
        let request = InvitationRequest {
            role: Role::Viewer,
            owner,
            project: None,
            trusted: false,
            uses,
            valid_s,
            address: None,
        };
        let refusal = head.people.invite(root(), &request);
        assert!(matches!(refusal, Err(Refusal::Range { .. })), "{uses} {valid_s}");
    }
}

#[test]
fn nobody_enrols_or_speaks_with_a_key_that_is_not_theirs() {
    let head = Head::new();
    let (mine, theirs) = (key(), key());
    let invitation = head.invites(Role::Viewer, 9);
    let stolen = Enrolment {
        invitation: invitation.clone(),
        host: None,
        public_key: theirs.public().to_string(),
        proof: mine.sign(Purpose::Enrol, &invitation.id),
        as_token: false,
    };
    assert!(matches!(head.people.enrol(&stolen), Err(Refusal::Proof)));
    let other_word = Enrolment { proof: theirs.sign(Purpose::Answer, &invitation.id), ..stolen };
    assert!(matches!(head.people.enrol(&other_word), Err(Refusal::Proof)));
    head.enrols(&invitation, &theirs, None).expect("invited");
    assert!(matches!(head.enrols(&invitation, &theirs, None), Err(Refusal::Known(_))));
    let asked = ChallengeRequest { id: theirs.public().id() };
    let Challenge { challenge } = head.people.challenge(&asked).expect("known");
    for proof in [
        mine.sign(Purpose::Answer, &challenge),
        theirs.sign(Purpose::Enrol, &challenge),
        theirs.sign(Purpose::Answer, "another challenge"),
        challenge.clone(),
    ] {
        let request = SessionRequest { challenge: challenge.clone(), proof };
        let refused = head.people.session(&request);
        assert!(matches!(refused, Err(Refusal::Answer(AnswerError::Proof))));
    }
    let forged = theirs.sign(Purpose::Challenge, &claims(theirs.public().id(), 60));
    let proof = theirs.sign(Purpose::Answer, &forged);
    let request = SessionRequest { challenge: forged, proof };
    assert!(matches!(head.people.session(&request), Err(Refusal::Answer(AnswerError::Challenge))));
    // What was signed for a challenge is no session.
    assert!(head.role(&challenge).is_err());
}

#[test]
fn what_is_too_old_is_nothing() {
    let head = Head::new();
    let one = key();
    head.enrols(&head.invites(Role::Admin, 1), &one, None).expect("invited");
    let old = head.people.key().sign(Purpose::Challenge, &claims(one.public().id(), 0));
    let request = SessionRequest { proof: one.sign(Purpose::Answer, &old), challenge: old.clone() };
    assert!(matches!(head.people.session(&request), Err(Refusal::Answer(AnswerError::Challenge))));
    let ended = head.people.key().sign(Purpose::Session, &claims(one.public().id(), 0));
    for _ in 0..2 {
        assert!(head.role(&ended).expect_err("it has ended").contains("ask for a new one"));
    }
}

#[test]
fn a_hosts_name_belongs_to_its_first_key_until_that_is_revoked() {
    let head = Head::new();
    let (one, other) = (key(), key());
    let invitation = head.invites(Role::Agent, 9);
    assert!(matches!(head.enrols(&invitation, &one, None), Err(Refusal::NoHost)));
    head.enrols(&invitation, &one, Some("desk7")).expect("invited");
    let host = "desk7".parse().expect("a plain name");
    assert!(head.people.is_kept(&host));
    let refusal = head.enrols(&invitation, &other, Some("desk7")).expect_err("it is another's");
    assert!(refusal.to_string().contains(&one.public().id().to_string()), "{refusal}");
    let token = head.session(&one).expect("known");
    head.people.revoke("root", &one.public().id()).expect("known");
    assert!(head.role(&token).expect_err("revoked").contains("was revoked"));
    assert!(matches!(head.session(&one), Err(Refusal::Revoked(_))));
    // What it was invited with is good no more, and its name is free.
    let used_up = head.enrols(&invitation, &other, Some("desk7"));
    assert!(matches!(used_up, Err(Refusal::UsedUp { .. })));
    head.enrols(&head.invites(Role::Agent, 1), &other, Some("desk7")).expect("it is free");
    let viewers = head.invites(Role::Viewer, 1);
    let viewer = head.enrols(&viewers, &key(), Some("desk8")).expect("where it joins says nothing");
    assert_eq!(viewer.host, None);
}

#[test]
fn nobody_elses_host_has_a_name_that_one_may_be_taken_for() {
    let head = Head::new();
    let of = |owner: &str| {
        let owner = owner.parse().expect("a plain name");
        let request = InvitationRequest {
            role: Role::Agent,
            owner,
            project: None,
            trusted: false,
            uses: 9,
            valid_s: 60,
            address: None,
        };
        head.people.invite(root(), &request).expect("a plain request")
    };
    let (farm, volunteer) = (of("farm"), of("mallory"));
    head.enrols(&farm, &key(), Some("render042")).expect("invited");
    for name in ["RENDER042", "render042.evil"] {
        let refused = head.enrols(&volunteer, &key(), Some(name));
        assert!(matches!(refused, Err(Refusal::NameTaken { .. })), "{name}");
    }
    let of_hooks = |owner: &str| {
        let owner = owner.parse().expect("a plain name");
        let (role, project) = (Role::Hook, None);
        let (trusted, uses, valid_s, address) = (false, 9, 60, None);
        let request = InvitationRequest { role, owner, project, trusted, uses, valid_s, address };
        head.people.invite(root(), &request).expect("a plain request")
    };
    for name in ["render042", "render042.evil"] {
        let refused = head.enrols(&of_hooks("mallory"), &key(), Some(name));
        assert!(matches!(refused, Err(Refusal::NameTaken { .. })), "a hook of {name}");
    }
    head.enrols(&of_hooks("farm"), &key(), Some("render042")).expect("its own host");
    head.enrols(&farm, &key(), Some("render042.lab")).expect("its own may be near");
    head.enrols(&volunteer, &key(), Some("render0421")).expect("another name");
}

#[test]
fn who_signs_shows_no_key_as_a_token() {
    let head = Head::new();
    let as_token = |role: Role, host: Option<&str>| {
        let (key, invitation) = (key(), head.invites(role, 1));
        let enrolled = head.people.enrol(&Enrolment {
            host: host.map(|name| name.parse().expect("a plain name")),
            public_key: key.public().to_string(),
            proof: key.sign(Purpose::Enrol, &invitation.id),
            as_token: true,
            invitation,
        });
        enrolled.map(|_| key.token())
    };
    for (role, host) in [(Role::Agent, Some("desk7")), (Role::Monitor, None)] {
        assert!(matches!(as_token(role, host), Err(Refusal::NoToken(_))), "{role}");
    }
    let token = as_token(Role::Viewer, None).expect("a program that looks");
    assert_eq!(head.role(&token), Ok(Role::Viewer));
    // Who has a key that signs may not show it.
    let signs = key();
    head.enrols(&head.invites(Role::Viewer, 1), &signs, None).expect("invited");
    assert!(head.role(&signs.token()).is_err());
}

#[test]
fn a_hosts_hook_has_a_key_beside_its_agents_and_a_monitor_is_told_of_both() {
    let head = Head::new();
    let (agent, hook) = (key(), key());
    head.enrols(&head.invites(Role::Agent, 1), &agent, Some("desk7")).expect("invited");
    let hooks = head.invites(Role::Hook, 2);
    assert!(matches!(head.enrols(&hooks, &hook, None), Err(Refusal::NoHost)));
    head.enrols(&hooks, &hook, Some("desk7")).expect("invited");
    let second = head.enrols(&hooks, &key(), Some("desk7"));
    assert!(matches!(second, Err(Refusal::NameTaken { .. })), "one hook is known by that name");
    head.enrols(&head.invites(Role::Submitter, 1), &key(), None).expect("invited");
    let told = || head.people.of_farm();
    let before = told();
    let roles: BTreeSet<Role> = before.people.iter().map(|of| of.role).collect();
    assert_eq!(roles, BTreeSet::from([Role::Agent, Role::Hook]), "submitters ask no monitor");
    assert_eq!(told(), before);
    let mut changes = head.people.changes();
    changes.mark_unchanged();
    head.people.revoke("root", &hook.public().id()).expect("known");
    assert!(changes.has_changed().expect("the people are there"));
    assert_ne!(told().version, before.version);
    assert_eq!(told().people.len(), 1);
}

#[test]
fn the_last_administrator_stays() {
    let head = Head::new();
    let (one, other) = (key(), key());
    let invitation = head.invites(Role::Admin, 2);
    head.enrols(&invitation, &one, None).expect("invited");
    assert!(matches!(head.people.revoke("root", &one.public().id()), Err(Refusal::LastAdmin(_))));
    head.enrols(&invitation, &other, None).expect("invited");
    let by = Inviter { name: "one".into(), id: Some(one.public().id()) };
    let owner = "anna".parse().expect("a plain name");
    let request = InvitationRequest {
        role: Role::Admin,
        owner,
        project: None,
        trusted: false,
        uses: 1,
        valid_s: 60,
        address: None,
    };
    let from_one = head.people.invite(by, &request).expect("an administrator");
    head.people.revoke("root", &one.public().id()).expect("there is another");
    let used_up = head.enrols(&from_one, &key(), None);
    assert!(matches!(used_up, Err(Refusal::UsedUp { .. })), "nor is anybody whom it invited");
    assert!(matches!(head.people.revoke("root", &one.public().id()), Err(Refusal::Revoked(_))));
    assert!(matches!(head.people.revoke("root", &key().public().id()), Err(Refusal::Unknown(_))));
}

#[test]
fn what_was_done_is_in_a_list_that_nobody_changes_unnoticed() {
    let head = Head::new();
    let one = key();
    head.enrols(&head.invites(Role::Viewer, 1), &one, None).expect("invited");
    head.people.revoke("root", &one.public().id()).expect("known");
    let entries = |audit: &Audit| gleaner_identity::check_audit(&audit.text, audit.end);
    let audit = head.people.audit().expect("written");
    let done: Vec<String> =
        entries(&audit).expect("whole").into_iter().map(|entry| entry.what).collect();
    assert_eq!(done, ["invite", "enrol", "revoke"]);
    // A line of what was not done after all is cut off before the next.
    let file = head.folder.path().join("audit.jsonl");
    fs::write(&file, [audit.text.as_bytes(), b"{}\n\xff"].concat()).expect("ours");
    let done = entries(&head.people.audit().expect("read")).map(|list| list.len());
    assert_eq!(done, Ok(3), "nor is it said");
    head.invites(Role::Viewer, 1);
    assert_eq!(entries(&head.people.audit().expect("written")).map(|list| list.len()), Ok(4));
    let text = fs::read_to_string(&file).expect("written");
    fs::write(&file, text.lines().skip(1).collect::<Vec<_>>().join("\n")).expect("ours");
    let broken = entries(&head.people.audit().expect("read")).expect_err("a line is gone");
    assert!(broken.to_string().starts_with("line 1 "), "{broken}");
}

#[test]
fn a_broker_that_cannot_read_whom_it_let_in_does_not_start_and_what_cannot_be_written_is_not_said()
{
    let head = Head::new();
    head.invites(Role::Viewer, 1);
    let file = head.folder.path().join("people.json");
    let text = fs::read_to_string(&file).expect("written");
    fs::write(&file, &text[..text.len() / 2]).expect("ours");
    let error = People::open(head.folder.path()).err().expect("damaged").to_string();
    assert!(error.contains("people.json is damaged"), "{error}");
    fs::write(&file, text.replacen("root", "rool", 1)).expect("ours");
    let error = People::open(head.folder.path()).err().expect("damaged").to_string();
    assert!(error.contains("another hash"), "{error}");
    fs::remove_file(&file).expect("ours");
    let error = People::open(head.folder.path()).err().expect("gone").to_string();
    assert!(error.contains("it is gone"), "{error}");
    // A folder is in the way of the next file.
    fs::create_dir(head.folder.path().join("people.json.new")).expect("ours");
    let owner = "anna".parse().expect("a plain name");
    let request = InvitationRequest {
        role: Role::Viewer,
        owner,
        project: None,
        trusted: false,
        uses: 1,
        valid_s: 60,
        address: None,
    };
    assert!(matches!(head.people.invite(root(), &request), Err(Refusal::Disk(_))));
    assert_eq!(head.people.book().invitations.len(), 1);
}

#[test]
fn a_project_is_of_those_who_submit_or_look() {
    let mut head = Head::new();
    let project: ProjectName = "lighting".parse().expect("a plain name");
    let request = |role| InvitationRequest {
        role,
        owner: "anna".parse().expect("a plain name"),
        project: Some(project.clone()),
        trusted: false,
        uses: 1,
        valid_s: 60,
        address: None,
    };
    for role in [Role::Agent, Role::Monitor, Role::Admin] {
        let refusal = head.people.invite(root(), &request(role)).expect_err("no project's");
        assert!(matches!(refusal, Refusal::NoProject(of) if of == role), "{refusal}");
    }
    let (invitation, key) = (head.people.invite(root(), &request(Role::Submitter)), key());
    let status = head.enrols(&invitation.expect("a plain request"), &key, None).expect("enrolled");
    assert_eq!(status.project.as_ref(), Some(&project));
    head.starts_again();
    let token = head.session(&key).expect("a session");
    let who = head.people.who(&token).expect("a session").expect("it goes on");
    assert_eq!(who.project, Some(project));
}

#[test]
fn with_another_key_sessions_end_and_people_stay() {
    let mut head = Head::new();
    let (invitation, key) = (head.invites(Role::Submitter, 1), key());
    head.enrols(&invitation, &key, None).expect("enrolled");
    let before = head.session(&key).expect("a session");
    assert_eq!(head.role(&before), Ok(Role::Submitter));
    head.people.rotate_key("root").expect("made");
    assert!(head.role(&before).expect_err("it has ended").contains("none of this broker's"));
    let after = head.session(&key).expect("a session");
    head.starts_again();
    assert_eq!(head.role(&after), Ok(Role::Submitter));
    assert!(head.role(&before).is_err());
}

#[test]
fn an_owner_has_so_many_hosts_and_asks_so_often() {
    let mut head = Head::new();
    let limits = OwnerLimits { hosts: 1, requests_per_s: 1, ..OwnerLimits::default() };
    head.people = head.people.clone().with_limits(limits);
    let invitation = head.invites(Role::Agent, 2);
    head.enrols(&invitation, &key(), Some("one")).expect("enrolled");
    let refusal = head.enrols(&invitation, &key(), Some("two")).expect_err("one too many");
    assert!(refusal.to_string().contains("anna has 1 hosts with keys"), "{refusal}");
    let identity = |role| Identity {
        id: key().public().id(),
        role,
        owner: "anna".parse().expect("a plain name"),
        project: None,
        host: None,
    };
    let refused = |role| (0..1_000).any(|_| head.people.admit(&identity(role)).is_err());
    assert!(refused(Role::Submitter));
    assert!(!refused(Role::Agent) && !refused(Role::Admin), "work is not held up");
}

#[test]
fn agents_alone_are_trusted_and_for_as_long_as_they_have_a_key() {
    let head = Head::new();
    let request = |role| InvitationRequest {
        role,
        owner: "farm".parse().expect("a plain name"),
        project: None,
        trusted: true,
        uses: 2,
        valid_s: 60,
        address: None,
    };
    let refusal = head.people.invite(root(), &request(Role::Submitter)).expect_err("no agent");
    assert!(matches!(refusal, Refusal::NoTrust(Role::Submitter)), "{refusal}");
    assert!(head.people.vouched().is_empty());
    let invitation = head.people.invite(root(), &request(Role::Agent)).expect("a plain request");
    let keys = [key(), key()];
    let of = ["f1", "f2"].map(|name| HostName::new(name).expect("a plain name"));
    let enrolled: Vec<_> = keys
        .iter()
        .zip(&of)
        .map(|(key, host)| head.enrols(&invitation, key, Some(host.as_str())).expect("enrolled"))
        .collect();
    assert!(enrolled.iter().all(|of| of.trusted));
    assert_eq!(head.people.vouched().len(), 1);
    head.people.revoke("root", &enrolled[0].id).expect("known");
    let revoked = head.people.revoked_hosts();
    let of_first = |of: &RevokedHost| (of.host.clone(), of.last_of.clone());
    assert_eq!(revoked.iter().map(of_first).collect::<Vec<_>>(), [(of[0].clone(), None)]);
    assert_eq!(head.people.vouched().len(), 1);
    assert_eq!(head.people.hosts_with_keys(), Some([of[1].clone()].into()));
    head.people.revoke("root", &enrolled[1].id).expect("known");
    assert!(head.people.vouched().is_empty());
    let farm: OwnerName = "farm".parse().expect("a plain name");
    assert!(head.people.revoked_hosts().iter().all(|of| of.last_of.as_ref() == Some(&farm)));
    assert_eq!(head.people.hosts_with_keys(), None);
}
