//! The rule for a user of a server, with no more rights than locks need.

use crate::core::error::{Error, ErrorKind};
use crate::store::Named;
use crate::store::redis::Connector as _;
use crate::store::redis::examine::place;
use crate::store::redis::examine::rights::{CLUSTER, DOCTOR, HINTS, LOCK, SHARDS, TOOLS};

/// Writes one command for each URL of a server. It makes a user for the locks whose names begin
/// with `prefix`. It needs Redis 7 or Valkey. The word `PASSWORD` stands for the password.
///
/// # Errors
///
/// [`Config`](ErrorKind::Config) for a URL that cannot be understood, or a prefix with characters
/// that a rule cannot contain.
pub fn acl_rules(urls: &[impl AsRef<str>], prefix: &str) -> Result<Vec<String>, Error> {
    let is_plain = |c: char| c.is_ascii_graphic() && !"*?[]\\{}\"'".contains(c);
    if !prefix.chars().all(is_plain) {
        let message = "the prefix has a character that an ACL rule cannot contain; it may have \
                       letters, digits, and marks such as `:` and `-`; the store was not \
                       contacted; choose another prefix";
        return Err(Error::new(ErrorKind::Config, message));
    }
    let mut rules = Vec::new();
    for url in urls {
        let Named::Redis(connector) = Named::of(url.as_ref())? else { continue };
        let (place, terms) = (place(&connector), connector.terms());
        let mut keys = if prefix.is_empty() {
            "~*".to_owned()
        } else {
            format!(
                "~{prefix}* ~{{{prefix}* ~:lh:client:* ~:lh:epoch ~leasehold:probe:* \
                 ~{{leasehold:probe:*"
            )
        };
        let mut rights = vec![LOCK, HINTS, "+client|tracking", TOOLS, DOCTOR];
        if terms.copies.fsync {
            rights.push("+waitaof");
        }
        if !connector.seeds().is_empty() {
            rights.extend([SHARDS, CLUSTER]);
        }
        if place.db != 0 {
            rights.push("+select");
        }
        keys.push_str(" resetchannels &:lh:inbox:*");
        let user = place.user.unwrap_or_else(|| "leasehold".to_owned());
        let rights = rights.join(" ");
        rules.push(format!("ACL SETUSER {user} on >PASSWORD resetkeys {keys} -@all {rights}"));
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_the_documented_rights_and_no_password() {
        let url = "redis://app:secret@h/2?fsync=yes";
        let [rule] = &acl_rules(&[url], "app:").expect("a rule")[..] else { panic!("one URL") };
        for rights in [LOCK, HINTS, TOOLS, "+select", "+waitaof", "~app:* ~{app:*"] {
            assert!(rule.contains(rights), "{rights}: {rule}");
        }
        // The user may have had more rights before.
        for taken in [" resetkeys ", " resetchannels &:lh:inbox:* ", " -@all "] {
            assert!(rule.contains(taken), "{taken}: {rule}");
        }
        for record in ["~:lh:client:*", "~:lh:epoch", "+client|tracking", DOCTOR] {
            assert!(rule.contains(record), "{record}: {rule}");
        }
        assert!(rule.starts_with("ACL SETUSER app on >PASSWORD ") && !rule.contains("secret"));
        let rules = acl_rules(&["redis://h", "sqlite:/x"], "").expect("a rule");
        assert_eq!(rules.len(), 1);
        assert!(rules[0].contains(" ~* ") && !rules[0].contains("select"), "{rules:?}");
        let rules = acl_rules(&["redis+cluster://h,i"], "app:").expect("a rule");
        assert!(rules[0].ends_with(&format!("{SHARDS} {CLUSTER}")), "{rules:?}");
        for bad in ["a b", "a*", "{a", "a\n", "ü"] {
            assert_eq!(acl_rules(&[url], bad).expect_err(bad).kind(), ErrorKind::Config);
        }
    }
}
