//! When hosts are there: renders take farm hosts, desktops leave and return.

use gleaner_protocol::{Span, Time};

use crate::dice::Dice;

/// One kind of host: how long it is there, and how long it is not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rhythm {
    pub(crate) there: Lengths,
    pub(crate) away: Lengths,
}

/// Random lengths of periods.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Lengths {
    /// Log-normal: mean in seconds and standard deviation of the logarithm.
    LogNormal(f64, f64),
    /// Exponential: mean in seconds.
    Exponential(f64),
}

impl Lengths {
    fn mean_s(self) -> f64 {
        match self {
            Self::LogNormal(mean, _) | Self::Exponential(mean) => mean,
        }
    }

    fn draw(self, dice: &mut Dice) -> Span {
        let seconds = match self {
            Self::LogNormal(mean, sigma) => dice.log_normal(mean, sigma),
            Self::Exponential(mean) => dice.exponential(mean),
        };
        Span::from_micros((seconds * 1e6) as u64)
    }
}

/// When one host changes between being there and not; from its own stream of chance, so that it
/// does so at the same times under every policy.
#[derive(Debug)]
pub(crate) struct Presence {
    rhythm: Rhythm,
    dice: Dice,
    is_there: bool,
    until: Time,
}

impl Presence {
    /// Begins somewhere in a period.
    pub(crate) fn begin(rhythm: Rhythm, mut dice: Dice) -> Self {
        let (there, away) = (rhythm.there.mean_s(), rhythm.away.mean_s());
        let is_there = dice.happens(there / (there + away));
        let whole = if is_there { rhythm.there } else { rhythm.away }.draw(&mut dice);
        let rest = Span::from_micros((whole.as_micros() as f64 * dice.unit()) as u64);
        Self { rhythm, dice, is_there, until: Time::ZERO + rest }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.is_there
    }

    /// When it changes next.
    pub(crate) fn until(&self) -> Time {
        self.until
    }

    /// It changes.
    pub(crate) fn change(&mut self) {
        self.is_there = !self.is_there;
        let lengths = if self.is_there { self.rhythm.there } else { self.rhythm.away };
        self.until = self.until + lengths.draw(&mut self.dice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds that a host was there, and periods of it, in so many days.
    fn there(rhythm: Rhythm, days: u64) -> (f64, u32) {
        let mut presence = Presence::begin(rhythm, Dice::new(1, 1));
        let end = Time::ZERO + Span::from_secs(days * 86_400);
        let (mut now, mut sum, mut periods) = (Time::ZERO, 0.0, 0);
        while now < end {
            let until = presence.until().min(end);
            if presence.is_there() {
                sum += until.since(now).as_micros() as f64 / 1e6;
                periods += 1;
            }
            now = presence.until();
            presence.change();
        }
        (sum, periods)
    }

    #[test]
    fn periods_have_the_means_that_were_asked_for() {
        let farm = Rhythm {
            there: Lengths::LogNormal(2_113.0, 1.0),
            away: Lengths::LogNormal(1_800.0, 1.0),
        };
        let (sum, periods) = there(farm, 4_000);
        assert!((sum / 4_000.0 / 86_400.0 - 0.54).abs() < 0.01, "{sum}");
        assert!((sum / f64::from(periods) - 2_113.0).abs() < 60.0);
        let desktop =
            Rhythm { there: Lengths::Exponential(5_400.0), away: Lengths::Exponential(14_400.0) };
        let (sum, _) = there(desktop, 20_000);
        assert!((sum / 20_000.0 / 86_400.0 - 5.4 / 19.8).abs() < 0.01, "{sum}");
    }
}
