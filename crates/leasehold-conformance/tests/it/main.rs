//! Tests of the suite itself: it believes no store that lies.

mod liar;
mod lies;
mod real_time;
