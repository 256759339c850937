//! The answers of a client when a server asks for a password. Nothing here does any I/O.

use sha1_smol::Sha1;
use sha2::{Digest as _, Sha256};

pub(super) const NATIVE: &str = "mysql_native_password";
pub(super) const CACHING: &str = "caching_sha2_password";

/// The plugins by which a server knows the user of a socket.
const SOCKET: [&str; 2] = ["unix_socket", "auth_socket"];

/// The answer of a plugin. `None` if this client does not have the plugin.
pub(super) fn answer(plugin: &str, password: &[u8], nonce: &[u8]) -> Option<Vec<u8>> {
    match plugin {
        _ if SOCKET.contains(&plugin) => Some(Vec::new()),
        NATIVE | CACHING if password.is_empty() => Some(Vec::new()),
        NATIVE => Some(native(password, nonce)),
        CACHING => Some(caching(password, nonce)),
        _ => None,
    }
}

/// SHA1(password) XOR SHA1(nonce SHA1(SHA1(password)))
fn native(password: &[u8], nonce: &[u8]) -> Vec<u8> {
    let once = sha1(password);
    let mixed = sha1(&[nonce, &sha1(&once)].concat());
    once.iter().zip(mixed).map(|(one, other)| one ^ other).collect()
}

fn sha1(bytes: &[u8]) -> [u8; 20] {
    Sha1::from(bytes).digest().bytes()
}

/// SHA256(password) XOR SHA256(SHA256(SHA256(password)) nonce)
fn caching(password: &[u8], nonce: &[u8]) -> Vec<u8> {
    let once = Sha256::digest(password);
    let mixed = Sha256::new().chain_update(Sha256::digest(once)).chain_update(nonce).finalize();
    once.iter().zip(mixed).map(|(one, other)| one ^ other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &[u8] = b"abcdefghijklmnopqrst";

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The values are those of Python's `hashlib`.
    #[test]
    fn a_password_is_mixed_as_servers_expect() {
        let of = |plugin| hex(&answer(plugin, b"secret", NONCE).expect("it is known"));
        assert_eq!(of(NATIVE), "8817c50fa779daef010ee7577825b0847df9842e");
        assert_eq!(of(CACHING), "c76e2898612a4cf042c77fa8c4702c4c64c0c2c557c53c4d75595aaa6abae809");
    }

    #[test]
    fn no_password_is_sent_as_nothing_and_an_unknown_plugin_has_no_answer() {
        assert_eq!(answer(NATIVE, b"", NONCE), Some(vec![]));
        assert_eq!(answer(CACHING, b"", NONCE), Some(vec![]));
        assert_eq!(answer("unix_socket", b"secret", NONCE), Some(vec![]));
        assert_eq!(answer("mysql_clear_password", b"secret", NONCE), None);
    }
}
