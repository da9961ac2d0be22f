//! Policies of the interactive and batch rendering lanes: chunk-grouped tasks on the nodes that have
//! their data.
