//! What of a view is drawn and sent next, without clocks and sockets: the rule of brokers and of
//! simulated services.
//!
//! The newest state wins. Without a credit it waits, and a newer one takes its place before anything is
//! drawn of it. A state that stays is drawn again better: the coarse level first where bricks are not
//! there yet, then all of it, then without a loss.
//!
//! # Invariants
//! - What is sent goes up: by state, and of one state by [`Grade`].
//! - At most [`VIEW_CREDITS`] pictures are being drawn or on their way undrawn, beside as many that
//!   bring bricks to where they are wanted.
//! - Once the client has drawn all that was sent and nothing is being drawn, the newest state was sent.

use gleaner_protocol::ViewState;
use gleaner_protocol::limits::VIEW_CREDITS;

/// How well a state is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// By the coarse level alone.
    Coarse,
    /// By all bricks.
    Full,
    /// By all bricks, and written without a loss.
    Lossless,
}

/// A picture: of which state, and how well.
pub type PictureOf = (u64, Grade);

/// What a client wants to see.
pub trait Wish: Clone {
    /// Goes up with each.
    fn seq(&self) -> u64;
    /// Whether another one is to be expected soon.
    fn is_moving(&self) -> bool;
}

impl Wish for ViewState {
    fn seq(&self) -> u64 {
        self.seq
    }

    fn is_moving(&self) -> bool {
        self.moving
    }
}

/// See the module's page.
#[derive(Debug)]
pub struct Flow<W> {
    newest: Option<W>,
    /// The last pictures that were begun: coarse, and others.
    asked_coarse: Option<u64>,
    asked: Option<PictureOf>,
    drawing: Vec<PictureOf>,
    /// What is being drawn by all bricks for their sake, while the coarse level is shown.
    brings: Vec<PictureOf>,
    /// Sent and not drawn by the client yet, in order.
    unseen: Vec<PictureOf>,
    last_sent: Option<PictureOf>,
    /// Whether bricks are not where they are wanted, so that the coarse level is shown.
    is_coarse: bool,
    has_coarse: bool,
    /// Whether the newest state has been there for long enough to be drawn without a loss.
    is_settled: bool,
    dropped: u64,
}

impl<W: Wish> Flow<W> {
    /// Of a volume with a coarse level, which is shown until all bricks were drawn once.
    #[must_use]
    pub fn new(has_coarse: bool) -> Self {
        Self {
            newest: None,
            asked_coarse: None,
            asked: None,
            drawing: Vec::new(),
            brings: Vec::new(),
            unseen: Vec::new(),
            last_sent: None,
            is_coarse: has_coarse,
            has_coarse,
            is_settled: false,
            dropped: 0,
        }
    }

    /// A client says what it wants to see. `false` of a state that is no newer than the newest: it is
    /// passed over.
    pub fn state(&mut self, state: W) -> bool {
        if self.newest.as_ref().is_some_and(|newest| newest.seq() >= state.seq()) {
            return false;
        }
        let was_asked = |seq: u64| {
            self.asked_coarse.is_some_and(|asked| asked >= seq)
                || self.asked.is_some_and(|(asked, _)| asked >= seq)
        };
        self.dropped += u64::from(self.newest.as_ref().is_some_and(|of| !was_asked(of.seq())));
        self.newest = Some(state);
        self.is_settled = false;
        true
    }

    /// States so far that newer ones came in the place of before anything was drawn.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The client has drawn this frame and all before; of one that was never sent it says nothing.
    pub fn drawn(&mut self, seq: u64) {
        if self.last_sent.is_some_and(|(sent, _)| seq <= sent) {
            self.unseen.retain(|(sent, _)| *sent > seq);
        }
    }

    /// The newest state has been there for a while.
    pub fn settle(&mut self) {
        self.is_settled = true;
    }

    /// Whether the newest state waits for [`Flow::settle`].
    #[must_use]
    pub fn is_settling(&self) -> bool {
        let still = self.newest.as_ref().filter(|state| !state.is_moving());
        !self.is_settled && still.is_some_and(|of| self.last_sent == Some((of.seq(), Grade::Full)))
    }

    /// What is to be drawn now, if there is something and a credit for it.
    pub fn begin_next(&mut self) -> Option<(Grade, W)> {
        let newest = self.newest.as_ref()?;
        let (seq, is_still) = (newest.seq(), !newest.is_moving());
        let has_credit = self.drawing.len() + self.unseen.len() < VIEW_CREDITS;
        if self.is_coarse {
            // One at a time: the bricks are to come soon.
            let is_free = self.drawing.is_empty() && has_credit;
            if is_free && self.asked_coarse.is_none_or(|asked| asked < seq) {
                self.asked_coarse = Some(seq);
                self.drawing.push((seq, Grade::Coarse));
                return Some((Grade::Coarse, newest.clone()));
            }
            if self.brings.is_empty() && self.asked.is_none_or(|asked| asked < (seq, Grade::Full)) {
                self.asked = Some((seq, Grade::Full));
                self.brings.push((seq, Grade::Full));
                return Some((Grade::Full, newest.clone()));
            }
            return None;
        }
        let grade = match self.asked {
            Some((asked, grade)) if asked == seq => match grade {
                Grade::Full
                    if is_still && self.is_settled && self.last_sent == Some((seq, grade)) =>
                {
                    Grade::Lossless
                }
                _ => return None,
            },
            _ => Grade::Full,
        };
        if !has_credit {
            return None;
        }
        self.asked = Some((seq, grade));
        self.drawing.push((seq, grade));
        Some((grade, newest.clone()))
    }

    /// A picture is there. Whether it is to be sent: not where a newer one was.
    pub fn came(&mut self, of: PictureOf) -> bool {
        self.remove(of);
        if of.1 > Grade::Coarse {
            self.is_coarse = false;
        }
        let is_new = self.last_sent.is_none_or(|sent| sent < of);
        if is_new {
            self.last_sent = Some(of);
            self.unseen.push(of);
        }
        is_new
    }

    /// Pictures that are being drawn and would not be sent any more.
    #[must_use]
    pub fn stale(&self) -> Vec<PictureOf> {
        let sent = self.last_sent;
        self.drawing.iter().copied().filter(|of| sent.is_some_and(|sent| *of <= sent)).collect()
    }

    /// A picture will not come, and nothing is known against trying again.
    pub fn lost(&mut self, of: PictureOf) {
        self.remove(of);
        match of.1 {
            Grade::Coarse if self.asked_coarse == Some(of.0) => self.asked_coarse = None,
            Grade::Full if self.asked == Some(of) => self.asked = None,
            // All of it was sent before.
            Grade::Lossless if self.asked == Some(of) => self.asked = Some((of.0, Grade::Full)),
            _ => {}
        }
    }

    /// A picture of all bricks takes long: the coarse level is shown meanwhile.
    pub fn late(&mut self, of: PictureOf) {
        let has_room = self.brings.len() < VIEW_CREDITS;
        if self.has_coarse && has_room && self.drawing.contains(&of) {
            self.is_coarse = true;
            self.drawing.retain(|drawing| *drawing != of);
            self.brings.push(of);
        }
    }

    fn remove(&mut self, of: PictureOf) {
        self.drawing.retain(|drawing| *drawing != of);
        self.brings.retain(|brings| *brings != of);
    }
}

#[cfg(test)]
mod tests;
