//! Policies of the deadline lane: predicted run times, admission, shares of cores.
