//! A certificate authority for a test, and what it signs.

use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use time::OffsetDateTime;

/// An authority with a folder for the files that servers read.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// A certificate and its key, as PEM text.
pub struct Certificate {
    pub pem: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Authority {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let nth = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = TempDir::with_prefix("compat-tls-").unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, format!("authority {nth} of a test"));
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Authority { issuer, folder }
    }

    /// The authority's own certificate.
    pub fn pem(&self) -> String {
        self.issuer.as_ref().pem()
    }

    /// A certificate for this host, valid from and until these numbers of days from now.
    pub fn sign(&self, host: &str, days: std::ops::Range<i64>) -> Certificate {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let day = |days| OffsetDateTime::now_utc() + time::Duration::days(days);
        (params.not_before, params.not_after) = (day(days.start), day(days.end));
        let key = KeyPair::generate().unwrap();
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Certificate { pem, key: key.serialize_pem() }
    }

    /// Writes a file that a server reads.
    pub fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.folder.path().join(name), text).unwrap();
        self.path(name)
    }

    /// The path of such a file.
    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a path in UTF-8").to_owned()
    }
}
