//! Connections between agents and the broker: in order while they last, open at one end longer
//! than at the other.

use gleaner_protocol::Time;

use super::machine::WireId;

/// A connection.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) host: usize,
    pub(super) open_at_agent: bool,
    pub(super) open_at_broker: bool,
    /// When the last message of each direction arrives: none overtakes.
    pub(super) arrivals: [Time; 2],
}

/// All that ever were.
#[derive(Debug, Default)]
pub(super) struct Wires(Vec<Wire>);

impl Wires {
    pub(super) fn open(&mut self, host: usize) -> WireId {
        let wire =
            Wire { host, open_at_agent: true, open_at_broker: true, arrivals: [Time::ZERO; 2] };
        self.0.push(wire);
        self.0.len() as WireId - 1
    }

    pub(super) fn get(&mut self, wire: WireId) -> &mut Wire {
        &mut self.0[usize::try_from(wire).expect("it was numbered by us")]
    }

    /// The broker's ends all go at once.
    pub(super) fn close_at_broker(&mut self) -> Vec<WireId> {
        let wires = self.0.iter_mut().zip(0..).filter(|(wire, _)| wire.open_at_broker);
        wires
            .map(|(wire, id)| {
                wire.open_at_broker = false;
                id
            })
            .collect()
    }
}
