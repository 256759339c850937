//! SQLite does not survive a fork. So the library refuses to open a SQLite store in a child if the
//! parent used SQLite.

use leasehold::{Client, ErrorKind};

use crate::process::Child;
use crate::{runtime, use_once};

/// The parent used SQLite and closed it. The child cannot open a SQLite store in any file.
pub(crate) fn child_is_refused(url: &str) {
    use_once(url);
    let child = Child::fork(|_| {
        for url in [url.to_owned(), format!("{url}.other")] {
            let error = runtime().block_on(Client::connect(&url)).expect_err("not in a fork");
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            let text = error.to_string();
            for part in ["fork", "nothing was opened", "exec"] {
                assert!(text.contains(part), "{text}");
            }
        }
        // Other stores work.
        use_once("memory:");
    });
    child.join();
    use_once(url);
}

/// The parent used the library, but not SQLite. The child may use SQLite.
pub(crate) fn child_of_one_that_used_none(url: &str) {
    use_once("memory:");
    let child = Child::fork(|_| use_once(url));
    child.join();
    use_once(url);
}
