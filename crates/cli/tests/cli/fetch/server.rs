//! A publisher on this machine: files over HTTPS, and whatever can go wrong with them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// How a path is answered. Every request takes the next manner of the list, and the last one for good.
#[derive(Clone, Debug)]
pub(crate) enum Manner {
    /// The whole file, or the range that is asked for.
    Whole(Vec<u8>),
    /// The same without ranges.
    WithoutRanges(Vec<u8>),
    /// So many bytes of what is asked for, and then the line is cut.
    Cut(Vec<u8>, usize),
    /// A redirect to this address.
    Redirect(String),
    /// This HTTP status, without a body.
    Status(u16),
    /// Nothing, until the client hangs up.
    Silence,
}

/// A server that runs until the test ends.
pub(crate) struct Server {
    /// `https://localhost:PORT`.
    pub(crate) address: String,
    /// The certificate to trust.
    pub(crate) authority: String,
    asked: Arc<Mutex<Vec<String>>>,
}

type Files = Arc<Mutex<BTreeMap<String, Vec<Manner>>>>;

impl Server {
    pub(crate) fn new(files: impl IntoIterator<Item = (&'static str, Vec<Manner>)>) -> Self {
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("localhost:0").unwrap();
        let address = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let files: Files = Arc::new(Mutex::new(
            files.into_iter().map(|(path, manners)| (path.to_owned(), manners)).collect(),
        ));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (config, known, log) = (Arc::new(config), Arc::clone(&files), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (config, files, log) = (Arc::clone(&config), Arc::clone(&known), Arc::clone(&log));
                // A client that hangs up or does not trust the certificate is no failure of the server.
                std::thread::spawn(move || drop(serve(stream, config, &files, &log)));
            }
        });
        Self { address, authority: certified.cert.pem(), asked }
    }

    /// What was asked for: paths, with the range if there was one.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Answers one request and closes the connection.
fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    files: &Files,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    let (mut path, mut range) = (String::new(), None);
    let mut reader = BufReader::new(&mut stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some(rest) = line.strip_prefix("GET ") {
            path = rest.split(' ').next().unwrap_or_default().to_owned();
        }
        if let Some(rest) = line.to_lowercase().strip_prefix("range: bytes=") {
            range = rest.trim().trim_end_matches('-').parse::<usize>().ok();
        }
    }
    drop(reader);
    log.lock().unwrap().push(range.map_or_else(|| path.clone(), |from| format!("{path} from {from}")));
    let manner = {
        let mut files = files.lock().unwrap();
        match files.get_mut(&path) {
            None => Manner::Status(404),
            Some(manners) if manners.len() > 1 => manners.remove(0),
            Some(manners) => manners[0].clone(),
        }
    };
    match manner {
        Manner::Whole(bytes) => send(&mut stream, &bytes, range, usize::MAX)?,
        Manner::WithoutRanges(bytes) => send(&mut stream, &bytes, None, usize::MAX)?,
        Manner::Cut(bytes, most) => send(&mut stream, &bytes, range, most)?,
        Manner::Redirect(to) => {
            write!(
                stream,
                "HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )?;
        }
        Manner::Status(status) => {
            write!(stream, "HTTP/1.1 {status} No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
        }
        Manner::Silence => {
            let _ = stream.read(&mut [0]);
            return Ok(());
        }
    }
    stream.flush()?;
    stream.conn.send_close_notify();
    stream.flush()
}

fn send(stream: &mut impl Write, bytes: &[u8], range: Option<usize>, most: usize) -> std::io::Result<()> {
    let total = bytes.len();
    match range {
        Some(from) if from >= total => {
            return write!(
                stream,
                "HTTP/1.1 416 No\r\ncontent-range: bytes */{total}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
        }
        Some(from) => write!(
            stream,
            "HTTP/1.1 206 Part\r\ncontent-range: bytes {from}-{}/{total}\r\ncontent-length: {}\r\netag: \"v1\"\r\nconnection: close\r\n\r\n",
            total - 1,
            total - from
        )?,
        None => write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: {total}\r\netag: \"v1\"\r\naccept-ranges: bytes\r\nconnection: close\r\n\r\n"
        )?,
    }
    let body = &bytes[range.unwrap_or(0)..];
    stream.write_all(&body[..body.len().min(most)])
}
