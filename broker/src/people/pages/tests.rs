//! Whose page a browser has.

use gleaner_identity::KeyPair;
use gleaner_protocol::people::{Enrolment, InvitationRequest, Role};

use super::super::Inviter;
use super::*;

fn people(folder: &tempfile::TempDir) -> People {
    People::open(folder.path()).expect("a new one")
}

fn one(number: usize) -> PrincipalId {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&number.to_le_bytes());
    PrincipalId::of_key(&key)
}

fn shown(people: &People, of: &PrincipalId) -> String {
    format!("other=1; {}={}; more", people.cookie_name(), people.cookie_of(of.clone()))
}

/// Somebody who has joined.
fn joined(people: &People) -> Identity {
    let key = KeyPair::generate().expect("made");
    let request = InvitationRequest {
        role: Role::Viewer,
        owner: "anna".parse().expect("a plain name"),
        project: None,
        trusted: false,
        uses: 1,
        valid_s: 60,
        address: None,
    };
    let root = Inviter { name: "root".into(), id: None };
    let invitation = people.invite(root, &request).expect("invited");
    let enrolled = people.enrol(&Enrolment {
        host: None,
        public_key: key.public().to_string(),
        proof: key.sign(Purpose::Enrol, &invitation.id),
        as_token: false,
        invitation,
    });
    people.identity(&enrolled.expect("enrolled").principal.id).expect("known")
}

#[test]
fn a_link_is_good_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let people = people(&folder);
    let secret = people.make_login(one(0)).expect("made");
    assert!(people.use_login("0123").is_err());
    assert_eq!(people.use_login(&secret).expect("good"), one(0));
    assert!(people.use_login(&secret).is_err(), "it was used");
    for _ in 0..LOGINS_OF_ONE_MAX {
        people.make_login(one(0)).expect("made");
    }
    assert!(matches!(people.make_login(one(0)), Err(LoginRefusal::TooManyOfOne)));
    for of in LOGINS_OF_ONE_MAX..LOGINS_MAX {
        people.make_login(one(of)).expect("others have theirs");
    }
    assert!(matches!(people.make_login(one(1)), Err(LoginRefusal::TooMany)));
}

#[test]
fn with_another_key_of_the_broker_links_are_good_no_longer() {
    let folder = tempfile::tempdir().expect("a folder");
    let people = people(&folder);
    let secret = people.make_login(one(0)).expect("made");
    let cookies = shown(&people, &one(0));
    people.rotate_key("root").expect("made");
    assert!(people.use_login(&secret).is_err());
    assert_eq!(people.page_of(&cookies), None, "its name has the key in it");
}

#[test]
fn a_cookie_outlives_a_restart_and_is_good_at_its_own_broker_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = people(&folder);
    let anna = joined(&first);
    let cookies = shown(&first, &anna.id);
    assert_eq!(first.page_of(&cookies), Some(Ok(anna.clone())));
    drop(first);
    let again = people(&folder);
    assert_eq!(again.page_of(&cookies), Some(Ok(anna.clone())));
    let elsewhere = tempfile::tempdir().expect("a folder");
    assert_eq!(people(&elsewhere).page_of(&cookies), None);
    let name = again.cookie_name();
    for bad in [format!("{name}=v4.public.AAAA"), format!("{name}={}", "A".repeat(9_000))] {
        assert!(matches!(again.page_of(&bad), Some(Err(_))), "{bad}");
    }
    assert_eq!(again.page_of(&format!("{name}=")), None, "who has logged out shows none");
    // What is signed for something else is no cookie.
    let claims = serde_json::to_string(&PageClaims { of: anna.id, until_s: u64::MAX });
    let session = again.key().sign(Purpose::Session, &claims.expect("JSON"));
    assert!(matches!(again.page_of(&format!("{name}={session}")), Some(Err(_))));
}

#[test]
fn the_page_of_a_revoked_key_is_nobodys() {
    let folder = tempfile::tempdir().expect("a folder");
    let people = people(&folder);
    let anna = joined(&people);
    let cookies = shown(&people, &anna.id);
    assert_eq!(people.page_of(&cookies), Some(Ok(anna.clone())));
    people.revoke("root", &anna.id).expect("known");
    let why = people.page_of(&cookies).expect("of this broker").expect_err("revoked");
    assert!(why.contains("was revoked"), "{why}");
}
