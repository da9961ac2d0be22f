//! Policies of mixed batches: a matrix of expected times of jobs on hosts is mapped at once.
