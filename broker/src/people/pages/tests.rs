//! Whose page a browser has.

use gleaner_identity::KeyPair;
use gleaner_protocol::people::{Enrolment, InvitationRequest, Role};
use gleaner_serve::Token;

use super::super::Inviter;
use super::*;

fn people(folder: &tempfile::TempDir) -> People {
    People::open(folder.path()).expect("a new one")
}

fn mark() -> PageOf {
    PageOf::Token(Token::new("0123456789abcdef").expect("long enough").mark())
}

fn shown(people: &People, of: &PageOf) -> String {
    format!("other=1; {}={}; more", people.cookie_name(), people.cookie_of(of))
}

#[test]
fn a_link_is_good_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let people = people(&folder);
    let secret = people.make_login(mark()).expect("made");
    assert!(people.use_login("0123").is_err());
    assert_eq!(people.use_login(&secret).expect("good"), mark());
    assert!(people.use_login(&secret).is_err(), "it was used");
    for _ in 0..LOGINS_OF_ONE_MAX {
        people.make_login(mark()).expect("made");
    }
    assert!(matches!(people.make_login(mark()), Err(LoginRefusal::TooManyOfOne)));
    let other = |of: usize| PageOf::Token(TokenMark::new(of.to_string()));
    for of in LOGINS_OF_ONE_MAX..LOGINS_MAX {
        people.make_login(other(of)).expect("others have theirs");
    }
    assert!(matches!(people.make_login(other(0)), Err(LoginRefusal::TooMany)));
}

#[test]
fn with_another_key_of_the_broker_links_are_good_no_longer() {
    let folder = tempfile::tempdir().expect("a folder");
    let people = people(&folder);
    let secret = people.make_login(mark()).expect("made");
    let cookies = shown(&people, &mark());
    people.rotate_key("root").expect("made");
    assert!(people.use_login(&secret).is_err());
    assert_eq!(people.page_of(&cookies), None, "its name has the key in it");
}

#[test]
fn a_cookie_outlives_a_restart_and_is_good_at_its_own_broker_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = people(&folder);
    let cookies = shown(&first, &mark());
    assert_eq!(first.page_of(&cookies), Some(Ok(mark())));
    drop(first);
    let again = people(&folder);
    assert_eq!(again.page_of(&cookies), Some(Ok(mark())));
    let elsewhere = tempfile::tempdir().expect("a folder");
    assert_eq!(people(&elsewhere).page_of(&cookies), None);
    let name = again.cookie_name();
    for bad in [format!("{name}=v4.public.AAAA"), format!("{name}={}", "A".repeat(9_000))] {
        assert!(matches!(again.page_of(&bad), Some(Err(_))), "{bad}");
    }
    assert_eq!(again.page_of(&format!("{name}=")), None, "who has logged out shows none");
    // What is signed for something else is no cookie.
    let claims =
        serde_json::to_string(&PageClaims { of: Whose::Token(String::new()), until_s: u64::MAX });
    let session = again.key().sign(Purpose::Session, &claims.expect("JSON"));
    assert!(matches!(again.page_of(&format!("{name}={session}")), Some(Err(_))));
}

#[test]
fn the_page_of_a_revoked_key_is_nobodys() {
    let folder = tempfile::tempdir().expect("a folder");
    let people = people(&folder);
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
    let status = people.enrol(&Enrolment {
        host: None,
        public_key: key.public().to_string(),
        proof: key.sign(Purpose::Enrol, &invitation.id),
        invitation,
    });
    let id = status.expect("enrolled").principal.id;
    let identity = people.identity(&id).expect("known");
    let cookies = shown(&people, &PageOf::Principal(identity.clone()));
    assert_eq!(people.page_of(&cookies), Some(Ok(PageOf::Principal(identity))));
    people.revoke("root", &id).expect("known");
    let why = people.page_of(&cookies).expect("of this broker").expect_err("revoked");
    assert!(why.contains("was revoked"), "{why}");
}
