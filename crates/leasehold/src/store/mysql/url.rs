//! Reads the URL of a server.
//!
//! | URL | server |
//! |---|---|
//! | `mysql://user:password@host:3306/database` | TCP; 3306 is the default port |
//! | `mysql://user@[::1]/database` | TCP; an IPv6 address needs brackets |
//! | `mysql://user@/database?socket=/run/mysqld/mysqld.sock` | that socket |

use crate::core::error::Error;
use crate::store::sql::url::{Address, Words};

static WORDS: Words = Words {
    schemes: &["mysql", "mariadb"],
    port: 3306,
    files: ["ssl-ca", "ssl-cert", "ssl-key"],
    socket: ("socket", "a socket"),
    own: None,
};

/// Reads a URL.
///
/// # Errors
///
/// `Config`, with the mistake and the right form, but without the URL.
pub(super) fn parse(url: &str) -> Result<Address, Error> {
    WORDS.read(url, |address| {
        let Address { user, password, database, .. } = &address;
        if database.is_empty() {
            return Err(format!("it names no database; {}", WORDS.form()));
        }
        if [Some(user), password.as_ref(), Some(database)]
            .into_iter()
            .flatten()
            .any(|text| text.contains('\0'))
        {
            return Err("its user, password or database contains a NUL character".to_owned());
        }
        Ok(address)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::error::ErrorKind;
    use crate::store::sql::url::Place;

    #[test]
    fn a_url_names_a_server_a_login_and_a_database() {
        let read = |url| parse(url).expect(url);
        let whole = read("mariadb://us%40er:p%3Ass@db.example:3307/app?connect_timeout=5");
        assert_eq!(whole.place, Place::Tcp("db.example".to_owned(), 3307));
        assert_eq!((&*whole.user, whole.password.as_deref()), ("us@er", Some("p:ss")));
        assert_eq!((&*whole.database, whole.connect_limit), ("app", Duration::from_secs(5)));
        assert_eq!(whole.label(), "mysql://us@er@db.example:3307/app");
        let socket = read("mysql://anna:secret@/app?socket=/run/mysqld/mysqld.sock");
        assert_eq!(socket.place, Place::Unix("/run/mysqld/mysqld.sock".into(), 3306));
        assert_eq!(socket.label(), "mysql://anna@/app?socket=/run/mysqld/mysqld.sock");
        assert_eq!(read("mysql://anna@[::1]/app").place, Place::Tcp("::1".to_owned(), 3306));
    }

    #[test]
    fn a_mistake_in_a_url_is_explained_without_the_password() {
        for (url, part) in [
            ("mysql://u:secret@h", "names no database"),
            // The rest of a password must not be taken for an option, whose name is shown.
            ("mysql://u:x?secret=3@h/a", "`%3F`"),
            ("mysql://u:x?a=1&secret&a=1@h/a", "`%3F`"),
            ("mysql://u:secret@h/a/b", "more than a database"),
            ("mysql://:secret@h/a", "names no user"),
            ("mysql://u:secret@/a", "names no host"),
            ("mysql://u:secret@h/a?schema=x", "no option `schema`"),
            ("mysql://u:secret@h/a?socket=x", "full path"),
            ("mysql://u:secret%00@h/a", "%00"),
        ] {
            let error = parse(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            let text = error.to_string();
            assert!(text.contains(part) && !text.contains("secret"), "{text}");
        }
    }
}
