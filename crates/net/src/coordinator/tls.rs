//! TLS of the service: certificates that can be replaced while it runs, and which agents a client certificate is for.
//!
//! A handshake uses the certificates of the moment at which it begins. Connections that are open keep theirs.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;
use tracing::{debug, info};

use super::config::TlsFiles;
use super::files::{FileId, file_id};
use super::incoming::{Incoming, Peer, Watched};
use super::options::ServeError;

/// The certificates in their files, as they were when those were last read.
#[derive(Debug)]
pub(super) struct Certificates {
    files: TlsFiles,
    current: RwLock<Current>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    /// Which files these are.
    read: Vec<Option<FileId>>,
}

impl Certificates {
    /// Reads the files. Fails if one is missing or the key does not belong to the certificate.
    pub(super) fn open(files: &TlsFiles) -> Result<Self, ServeError> {
        let current = RwLock::new(Current { read: identify(files), config: read(files)? });
        Ok(Self { files: files.clone(), current })
    }

    /// Reads the files again if one of them has changed. If they cannot be used, the old certificates stay.
    pub(super) fn reload(&self) -> Result<(), ServeError> {
        let found = identify(&self.files);
        let is_known = |current: &Current| current.read == found;
        if is_known(&self.current.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(());
        }
        let fresh = read(&self.files);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        // Also if they cannot be used: it is said once, and not every second.
        current.read = found;
        current.config = fresh?;
        info!("the certificates were read again");
        Ok(())
    }

    fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).config).into()
    }
}

fn identify(files: &TlsFiles) -> Vec<Option<FileId>> {
    let TlsFiles { certificate, key, client_ca } = files;
    [certificate, key].into_iter().chain(client_ca).map(|path| file_id(path)).collect()
}

fn read(files: &TlsFiles) -> Result<Arc<ServerConfig>, ServeError> {
    let unusable = |path: &Path, why: &dyn std::fmt::Display| {
        ServeError::Transport(format!("{}: {why}", path.display()))
    };
    let certificates = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&contents(&files.key)?)
        .map_err(|error| unusable(&files.key, &format!("it holds no private key: {error}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions");
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in self::certificates(path)? {
                roots.add(certificate).map_err(|error| unusable(path, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| unusable(path, &error))?)
        }
    };
    let config = builder.with_single_cert(certificates, key);
    let mut config = config.map_err(|error| unusable(&files.certificate, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

fn contents(path: &PathBuf) -> Result<Vec<u8>, ServeError> {
    std::fs::read(path).map_err(|error| ServeError::Certificate { path: path.clone(), error })
}

fn certificates(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let bytes = contents(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(ServeError::Transport(format!("{} holds no certificate", path.display()))),
        Err(error) => Err(ServeError::Transport(format!("{}: {error}", path.display()))),
    }
}

/// The agents that a client certificate names, by names of the form `agent-7`; `None` if it names none.
fn agents_of(certificate: &CertificateDer<'_>) -> Option<Arc<[u64]>> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let named: Arc<[u64]> =
        certificate.valid_dns_names().filter_map(|name| name.strip_prefix("agent-")?.parse().ok()).collect();
    (!named.is_empty()).then_some(named)
}

/// Connections that are ready for the service: plain ones, or those whose handshake is done.
pub(super) struct Doorway {
    pub(super) incoming: Incoming,
    pub(super) certificates: Option<Arc<Certificates>>,
    /// How long a handshake may take.
    pub(super) patience: Duration,
    pub(super) handshakes: JoinSet<Option<Connection>>,
}

impl Stream for Doorway {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            while let Poll::Ready(Some(done)) = self.handshakes.poll_join_next(context) {
                if let Ok(Some(connection)) = done {
                    return Poll::Ready(Some(Ok(connection)));
                }
            }
            let next = std::task::ready!(Pin::new(&mut self.incoming).poll_next(context));
            let Some(watched) = next.transpose()? else { return Poll::Ready(None) };
            let Some(certificates) = &self.certificates else {
                return Poll::Ready(Some(Ok(Connection::Plain(Box::new(watched)))));
            };
            let (acceptor, patience) = (certificates.acceptor(), self.patience);
            self.handshakes.spawn(async move {
                match tokio::time::timeout(patience, acceptor.accept(watched)).await {
                    Ok(Ok(stream)) => Some(Connection::Secured(Box::new(stream))),
                    Ok(Err(error)) => {
                        debug!(%error, "a handshake failed");
                        None
                    }
                    Err(_) => None,
                }
            });
        }
    }
}

/// A connection of an agent, encrypted or not.
pub(super) enum Connection {
    Plain(Box<Watched>),
    Secured(Box<TlsStream<Watched>>),
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        match self {
            Self::Plain(watched) => watched.connect_info(),
            Self::Secured(stream) => {
                let (watched, session) = stream.get_ref();
                let certificate = session.peer_certificates().and_then(<[_]>::first);
                watched.connect_info().of(certificate.and_then(agents_of))
            }
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(watched) => Pin::new(watched).poll_read(context, buffer),
            Self::Secured(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(watched) => Pin::new(watched).poll_write(context, bytes),
            Self::Secured(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(watched) => Pin::new(watched).poll_flush(context),
            Self::Secured(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(watched) => Pin::new(watched).poll_shutdown(context),
            Self::Secured(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(watched) => Pin::new(watched).poll_write_vectored(context, parts),
            Self::Secured(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(watched) => watched.is_write_vectored(),
            Self::Secured(stream) => stream.is_write_vectored(),
        }
    }
}
