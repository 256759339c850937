//! Certificates for TLS, from an authority that a test makes.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

const DAY: Duration = Duration::from_hours(24);

/// An authority that signs certificates. Its files are deleted when it is dropped.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    ca: PathBuf,
    home: TempDir,
}

/// A certificate and its private key, in files.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The file with the certificate.
    pub cert: PathBuf,
    /// The file with the private key.
    pub key: PathBuf,
}

impl Authority {
    /// Creates an authority with a key of its own.
    ///
    /// # Panics
    ///
    /// If its files cannot be written.
    #[must_use]
    pub fn new() -> Self {
        let home = tempfile::Builder::new().prefix("authority").tempdir();
        let home = home.expect("a temporary directory");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "an authority of a test");
        let certificate = params.self_signed(&key).expect("it signs");
        let ca = home.path().join("ca.pem");
        write(&ca, &certificate.pem());
        write(&home.path().join("ca.key"), &key.serialize_pem());
        Self { issuer: Issuer::new(params, key), ca, home }
    }

    /// The file with its own certificate.
    #[must_use]
    pub fn ca(&self) -> &Path {
        &self.ca
    }

    /// Its own certificate and key.
    #[must_use]
    pub fn itself(&self) -> Identity {
        Identity { cert: self.ca.clone(), key: self.home.path().join("ca.key") }
    }

    /// Issues a certificate for these host names and addresses, valid from yesterday until
    /// tomorrow. The files are named after `name`, and replace earlier ones of that name.
    ///
    /// # Panics
    ///
    /// Same as [`issue_for`](Self::issue_for).
    #[must_use]
    #[track_caller]
    pub fn issue(&self, name: &str, hosts: &[&str]) -> Identity {
        self.issue_for(name, hosts, -1..1)
    }

    /// Issues a certificate that is valid in these days, counted from now.
    ///
    /// # Panics
    ///
    /// If a host is neither a name nor an address, or the files cannot be written.
    #[must_use]
    #[track_caller]
    pub fn issue_for(&self, name: &str, hosts: &[&str], days: Range<i32>) -> Identity {
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names or addresses");
        params.not_before = at_day(days.start).into();
        params.not_after = at_day(days.end).into();
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("it signs");
        let at = |end| self.home.path().join(format!("{name}.{end}"));
        let identity = Identity { cert: at("pem"), key: at("key") };
        write(&identity.cert, &certificate.pem());
        write(&identity.key, &key.serialize_pem());
        identity
    }
}

fn at_day(day: i32) -> SystemTime {
    let distance = DAY * day.unsigned_abs();
    if day < 0 { SystemTime::now() - distance } else { SystemTime::now() + distance }
}

fn write(path: &Path, pem: &str) {
    std::fs::write(path, pem).expect("the directory takes files");
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({})", self.ca.display())
    }
}
