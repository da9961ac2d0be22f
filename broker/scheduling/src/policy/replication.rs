//! Policies of partitioned datasets: computation and the replication of chunks are scheduled together.
