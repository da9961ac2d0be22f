//! Keys of people and machines, what they sign, and the sessions that they get for it.
//!
//! ```text
//!  gleaner invite ──▶ line ──▶ gleaner join: makes a key, signs the invitation's id   POST /v1/enrol
//!  whoever enrolled: POST /v1/challenge ──▶ signs it ──▶ POST /v1/session ──▶ token for minutes
//! ```
//!
//! All that is signed is a PASETO v4.public token (Ed25519), with what it is for as its implicit
//! assertion: nothing that was signed for one purpose is good for another.
//!
//! # Invariants
//! - A key's file is made once, for its owner's eyes alone, and one that others can read is refused.
//! - What a token says counts only once its signature was checked.

mod audit;
mod credentials;
mod invitation_line;
mod key;
mod peer_tls;
mod session;
mod session_desk;
mod signed;
mod trust;

pub use audit::{AuditEnd, AuditEntry, AuditError, check_audit};
pub use credentials::Credentials;
pub use invitation_line::{InvitationLine, LineError};
pub use key::{KeyError, KeyPair, PublicKey, PublicKeyError};
pub use peer_tls::{peer_client, peer_key_of, peer_server};
pub use session::{SessionClient, SessionError};
pub use session_desk::{AnswerError, CHALLENGE_S, SESSION_S, SessionDesk, SessionEnd, Shown};
pub use signed::{Purpose, SignedError};
pub use trust::{
    Pin, Pinned, Trust, TrustError, client_config, pin_of, pin_of_file, pinned_config,
};
