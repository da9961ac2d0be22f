//! How many streams somebody has open: events, and what is pushed to pages. Each takes the place of a
//! connection for as long as it lasts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use gleaner_protocol::people::{Identity, PrincipalId};
use gleaner_serve::Problem;
use warp::http::StatusCode;

use crate::limits::STREAMS_OF_ONE_MAX;

/// Streams that are open, by whose they are. Clones are of the same ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Streams(Arc<Mutex<BTreeMap<PrincipalId, usize>>>);

/// An open stream, until it is dropped.
#[derive(Debug)]
pub(super) struct OpenStream {
    streams: Streams,
    /// Whoever has no key is not counted: such a one may do all.
    of: Option<PrincipalId>,
}

impl Streams {
    /// One more of somebody.
    ///
    /// # Errors
    /// They have as many as may be.
    pub(super) fn open(&self, of: Option<&Identity>) -> Result<OpenStream, Problem> {
        let of = of.map(|identity| identity.id.clone());
        if let Some(of) = &of {
            let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let count = open.entry(of.clone()).or_default();
            if *count >= STREAMS_OF_ONE_MAX {
                let why = format!("{STREAMS_OF_ONE_MAX} streams of {of} are open: close one first");
                return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many", why));
            }
            *count += 1;
        }
        Ok(OpenStream { streams: self.clone(), of })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let Some(of) = &self.of else { return };
        let mut open = self.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(of) {
            *count -= 1;
            if *count == 0 {
                open.remove(of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::people::Role;

    use super::*;

    #[test]
    fn one_key_has_so_many_and_others_have_theirs() {
        let identity = |key| Identity {
            id: PrincipalId::of_key(&[key; 32]),
            role: Role::Viewer,
            owner: "anna".parse().expect("a plain name"),
            project: None,
            host: None,
        };
        let streams = Streams::default();
        let open = |key| streams.open(Some(&identity(key)));
        let mut all: Vec<_> = (0..STREAMS_OF_ONE_MAX).map(|_| open(1).expect("room")).collect();
        assert!(open(1).is_err());
        let (_other, _nobody) = (open(2).expect("room"), streams.open(None).expect("room"));
        all.pop();
        drop(open(1).expect("one was closed"));
        drop(all);
        assert_eq!(streams.0.lock().expect("sound").len(), 1);
    }
}
