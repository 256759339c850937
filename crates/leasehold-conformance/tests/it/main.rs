//! Tests of the suite itself: it believes no store that lies.

mod guide;
mod liar;
mod lies;
mod modest;
mod real_time;
