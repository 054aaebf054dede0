//! TLS: whom this client trusts, and how it identifies itself.
//!
//! This crate sets up TLS itself, because the `redis` crate does not hand out its streams, loads the
//! platform's certificates at each connect, and depends on a setting of the process.

use std::error::Error as StdError;
use std::io;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, CertificateError, ClientConfig, RootCertStore};

use super::*;

/// TLS settings for servers of `rediss://` addresses. By default the client trusts the certificate
/// authorities of the platform, and has no certificate of its own. With the feature `tls`.
///
/// The certificate of a server must be valid for the host of its address.
#[derive(Clone, Default)]
pub struct Tls {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    server_name: Option<String>,
}

impl Tls {
    /// The defaults.
    pub fn new() -> Self {
        Tls::default()
    }

    /// Trusts the certificate authorities in this text, in PEM format, instead of the platform's.
    #[must_use]
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(pem.into());
        self
    }

    /// Sets the client's own certificate (with any that lead to its authority) and its key, both in PEM
    /// format, for servers that ask for one.
    #[must_use]
    pub fn identity_pem(
        mut self,
        certificates: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.identity = Some((certificates.into(), key.into()));
        self
    }

    /// Sets the name that servers' certificates must be valid for, instead of the host of each address. It is
    /// needed if servers are reached by addresses that their certificates do not name, as is usual behind
    /// sentinels.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("has_ca", &self.ca.is_some())
            .field("has_identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish()
    }
}

/// Settings that have been parsed, for all connections of a client.
pub(super) struct TlsClient {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

impl TlsClient {
    pub(super) fn new(settings: Option<&Tls>) -> Result<Self, Error> {
        // Explicit, because the choice of the process's provider belongs to the program.
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid("TLS cannot be set up").with_source(error))?;
        let roots = match settings.and_then(|settings| settings.ca.as_deref()) {
            Some(pem) => roots_of(pem)?,
            None => platform_roots()?,
        };
        let config = config.with_root_certificates(roots);
        let config = match settings.and_then(|settings| settings.identity.as_ref()) {
            Some((certificates, key)) => {
                let certificates = certificates_of(certificates, "the client's certificate")?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
                    invalid("the client's key is no PEM text").with_source(error)
                })?;
                config.with_client_auth_cert(certificates, key).map_err(|error| {
                    invalid("the client's certificate and key do not fit").with_source(error)
                })?
            }
            None => config.with_no_client_auth(),
        };
        let server_name = settings.and_then(|settings| settings.server_name.as_deref());
        let server_name = server_name.map(name_of).transpose()?;
        Ok(TlsClient { config: Arc::new(config), server_name })
    }

    pub(super) async fn handshake(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Error> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => name_of(host)?,
        };
        let connector = TlsConnector::from(self.config.clone());
        connector.connect(name, stream).await.map_err(|error| match failure(&error) {
            Some(detail) => failed(detail, error),
            None => reply::no_stream(error),
        })
    }
}

pub(super) fn failed(detail: &str, error: impl StdError + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Tls, Execution::NotExecuted).with_detail(detail).with_source(error)
}

/// A readable reason, if TLS failed and not the network.
pub(super) fn failure(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    let error = io_error(error)?.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match error {
        rustls::Error::InvalidCertificate(error) => match error {
            CertificateError::UnknownIssuer => {
                "its certificate is not from an authority that this client trusts: give the authority's \
                certificate to `Tls::ca_pem`"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another host"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet"
            }
            // The error comes from webpki; rustls passes on only its text.
            CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
                "its certificate is that of an authority (CA:TRUE), which no server may use for itself: \
                issue the server a certificate of its own (CA:FALSE), signed by the authority that \
                this client trusts"
            }
            _ => "its certificate is not valid",
        },
        rustls::Error::InvalidMessage(_) => {
            "it does not speak TLS on this port: use the one that does, or a redis:// address"
        }
        rustls::Error::AlertReceived(_) => "it refused the handshake or the client's certificate",
        _ => "the handshake failed",
    })
}

/// The I/O error itself, or the one inside an error of the `redis` crate, whose source is a pointer to it.
fn io_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    type Pointer = Arc<dyn StdError + Send + Sync>;
    let pointed_to = || error.source()?.downcast_ref::<Pointer>()?.downcast_ref();
    error.downcast_ref().or_else(pointed_to)
}

fn roots_of(pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_of(pem, "the CA")? {
        roots
            .add(certificate)
            .map_err(|error| invalid("the CA cannot be read").with_source(error))?;
    }
    Ok(roots)
}

fn platform_roots() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some platforms have certificates that can no longer be parsed: the others suffice.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    match added {
        0 => Err(invalid("the platform has no certificate authorities: give one with `tls`")),
        _ => Ok(roots),
    }
}

fn certificates_of(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates
        .map_err(|error| invalid(&format!("{what} is no PEM text")).with_source(error))?;
    match certificates.is_empty() {
        true => Err(invalid(&format!("{what} holds no certificate in PEM format"))),
        false => Ok(certificates),
    }
}

fn name_of(host: &str) -> Result<ServerName<'static>, Error> {
    let name = ServerName::try_from(host.to_owned());
    name.map_err(|error| invalid("no valid name of a TLS server").with_source(error))
}
