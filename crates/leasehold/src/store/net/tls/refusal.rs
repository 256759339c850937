//! The meaning of a failed handshake, and the advice for it.

use std::io;

use rustls::{AlertDescription, CertificateError, Error as TlsError};

use crate::core::error::{Error, ErrorKind};

/// The error for a failure of TLS; `None` if it is another failure.
///
/// A server may refuse our certificate after its side of the handshake. We notice when we read.
pub(crate) fn failure(cause: &io::Error) -> Option<Error> {
    let tls: &TlsError = cause.get_ref()?.downcast_ref()?;
    let (what, next) = match tls {
        TlsError::InvalidCertificate(reason) => of_certificate(reason),
        TlsError::InvalidMessage(_) => (
            "the server does not speak TLS",
            "use its TLS port; or write `redis` instead of `rediss`, or `sslmode=disable` for \
             other stores than Redis",
        ),
        TlsError::AlertReceived(alert) => of_alert(*alert)?,
        TlsError::PeerIncompatible(_) => (
            "the server has no version or cipher of TLS in common with this client",
            "allow TLS 1.2 or 1.3 on the server",
        ),
        _ => return None,
    };
    let message = format!("{what}; no request was sent; {next}");
    Some(Error::new(ErrorKind::Unavailable, message).with_source(tls.clone()))
}

/// Says what is wrong with a certificate, and what to do.
fn of_certificate(reason: &CertificateError) -> (&'static str, &'static str) {
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext,
        NotValidYet, NotValidYetContext, Other, UnknownIssuer,
    };
    match reason {
        UnknownIssuer => (
            "the server's certificate comes from an authority that is not trusted here",
            "add `?ca=PATH` to the URL, with the file of that authority",
        ),
        // Also if somebody shows a certificate without having its key.
        BadSignature => (
            "the server's certificate or its proof of the key has a wrong signature",
            "check that the right server answers, and that `ca` is the authority that signed its \
             certificate: another authority may have the same name",
        ),
        Expired | ExpiredContext { .. } => (
            "the server's certificate has expired",
            "renew it, or correct the clock of this machine",
        ),
        NotValidYet | NotValidYetContext { .. } => (
            "the server's certificate is not valid yet",
            "correct the clock of this machine, or the certificate",
        ),
        NotValidForName | NotValidForNameContext { .. } => (
            "the server's certificate is for another host",
            "in the URL, write a host that the certificate names, or add it as `tls_name`",
        ),
        // rustls does not name this case.
        Other(other) if other.to_string().contains("CaUsedAsEndEntity") => (
            "the server shows the certificate of an authority as its own (`CA:TRUE`)",
            "give the server a certificate with `CA:FALSE`, or one that the authority signed",
        ),
        _ => {
            ("the server's certificate is not valid", "replace the certificate; the cause says why")
        }
    }
}

/// `None` if the alert says nothing about a certificate.
const fn of_alert(alert: AlertDescription) -> Option<(&'static str, &'static str)> {
    use AlertDescription as Alert;
    Some(match alert {
        Alert::CertificateRequired => (
            "the server wants a certificate of this client",
            "add `?cert=PATH&key=PATH` to the URL",
        ),
        Alert::BadCertificate
        | Alert::UnknownCA
        | Alert::CertificateUnknown
        | Alert::CertificateExpired
        | Alert::CertificateRevoked
        | Alert::UnsupportedCertificate
        | Alert::AccessDenied
        | Alert::DecryptError => (
            "the server refuses the certificate of this client",
            "see the cause, and correct `cert` and `key` in the URL",
        ),
        // Servers with TLS 1.2 say no more than this if a certificate is missing.
        Alert::HandshakeFailure => (
            "the server refuses the TLS handshake",
            "if it wants a certificate of this client, add `?cert=PATH&key=PATH` to the URL",
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Anybody between us and the server can forge a refusal, so each of them may pass.
    #[test]
    fn each_failure_of_a_handshake_says_who_has_to_change_what() {
        let of = |tls: TlsError| failure(&io::Error::other(tls));
        let (certificate, alert) = (TlsError::InvalidCertificate, TlsError::AlertReceived);
        for (tls, part) in [
            (certificate(CertificateError::UnknownIssuer), "add `?ca=PATH`"),
            (certificate(CertificateError::BadSignature), "wrong signature"),
            (certificate(CertificateError::Expired), "certificate has expired"),
            (certificate(CertificateError::NotValidYet), "is not valid yet"),
            (certificate(CertificateError::NotValidForName), "is for another host"),
            (certificate(CertificateError::Revoked), "certificate is not valid; no"),
            (alert(AlertDescription::CertificateRequired), "wants a certificate of this client"),
            (alert(AlertDescription::UnknownCA), "refuses the certificate of this client"),
            (alert(AlertDescription::CertificateExpired), "refuses the certificate of this client"),
            (alert(AlertDescription::HandshakeFailure), "refuses the TLS handshake"),
        ] {
            let error = of(tls).expect(part);
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            let text = error.to_string();
            assert!(text.contains(part) && text.contains("no request was sent"), "{text}");
        }
        assert!(of(alert(AlertDescription::InternalError)).is_none(), "it is about nothing here");
        assert!(failure(&io::Error::from(io::ErrorKind::UnexpectedEof)).is_none());
    }
}
