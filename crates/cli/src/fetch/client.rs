//! Downloading one file over HTTPS: resumed where it stopped, checked for its whole length, tried again while it gets on.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use ureq::http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, RANGE};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Attempts in a row that bring nothing new before the download is given up.
const FRUITLESS: u32 = 3;
const MAX_REDIRECTS: u32 = 5;

/// A client that speaks HTTPS only, also after a redirect.
pub(super) struct Client {
    agent: ureq::Agent,
}

/// How an attempt to download a file ended.
enum Attempt {
    /// The file was received to its end.
    Whole,
    /// It stopped early, for this reason.
    Stopped(String),
}

impl Client {
    /// A client whose attempts last `timeout` at most, with the usual certificate authorities or those in a file.
    pub(super) fn new(timeout: Duration, authorities: Option<&Path>) -> anyhow::Result<Self> {
        let roots = match authorities {
            None => RootCerts::WebPki,
            Some(path) => {
                let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
                let certificate = Certificate::from_pem(&text)
                    .with_context(|| format!("{} has no certificate in it", path.display()))?;
                RootCerts::from([certificate])
            }
        };
        let config = ureq::Agent::config_builder()
            .https_only(true)
            .http_status_as_error(false)
            .max_redirects(MAX_REDIRECTS)
            .timeout_connect(Some(timeout))
            .timeout_recv_response(Some(timeout))
            .timeout_recv_body(Some(timeout))
            .user_agent(concat!("posse/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(roots).build());
        Ok(Self { agent: config.build().into() })
    }

    /// Downloads `url` to `to`. What an earlier attempt left is gone on with; what this one leaves when it fails stays
    /// for the next.
    pub(super) fn download(&self, url: &str, to: &Path, bar: &ProgressBar) -> anyhow::Result<()> {
        let part = Part::new(to);
        let mut fruitless = 0;
        loop {
            let before = part.length();
            let reason = match self.attempt(url, &part, bar)? {
                Attempt::Whole => return part.keep(to),
                Attempt::Stopped(reason) => reason,
            };
            fruitless = if part.length() > before { 0 } else { fruitless + 1 };
            if fruitless >= FRUITLESS {
                let kept = part.length();
                bail!(
                    "{url}: {reason}; {kept} bytes are kept in {}, and the same command goes on from there",
                    part.path.display()
                );
            }
        }
    }

    /// Sends one request and receives what it can. Fails only for reasons that another attempt would not
    /// mend.
    fn attempt(&self, url: &str, part: &Part, bar: &ProgressBar) -> anyhow::Result<Attempt> {
        let have = part.length();
        let mut request = self.agent.get(url);
        if have > 0 {
            request = request.header(RANGE, format!("bytes={have}-"));
            if let Some(tag) = part.tag() {
                request = request.header(IF_RANGE, tag);
            }
        }
        let mut response = match request.call() {
            Ok(response) => response,
            Err(error) if is_final(&error) => bail!("{url}: {error}"),
            Err(error) => return Ok(Attempt::Stopped(error.to_string())),
        };
        let headers = response.headers();
        let (mut file, start, total) = match response.status().as_u16() {
            200 => {
                part.remember(headers);
                (part.begin()?, 0, number(headers, CONTENT_LENGTH.as_str()))
            }
            206 => match range(headers) {
                Some((start, total)) if start == have => (part.append()?, start, total),
                _ => {
                    part.forget();
                    return Ok(Attempt::Stopped("the server sent another part than was asked for".into()));
                }
            },
            // All of it was here before, or what was here does not belong to the file of today.
            416 if range(headers).is_some_and(|(_, total)| total == Some(have)) => return Ok(Attempt::Whole),
            416 => {
                part.forget();
                return Ok(Attempt::Stopped("what was downloaded before is not a part of this file".into()));
            }
            status @ (408 | 429 | 500..=599) => {
                return Ok(Attempt::Stopped(format!("the server answers with status {status}")));
            }
            status => bail!("{url}: the server answers with status {status}"),
        };
        bar.set_length(total.unwrap_or(0));
        bar.set_position(start);
        let stopped = copy(response.body_mut().as_reader(), &mut file, bar)?;
        let length = part.length();
        Ok(match (stopped, total) {
            (Some(reason), _) => Attempt::Stopped(reason),
            (None, Some(total)) if length < total => {
                Attempt::Stopped(format!("it ended after {length} of {total} bytes"))
            }
            (None, Some(total)) if length > total => {
                part.forget();
                Attempt::Stopped(format!("it has {length} bytes instead of {total}"))
            }
            (None, _) => Attempt::Whole,
        })
    }
}

/// Whether another attempt would fail in the same way.
fn is_final(error: &ureq::Error) -> bool {
    matches!(
        error,
        ureq::Error::BadUri(_)
            | ureq::Error::RequireHttpsOnly(_)
            | ureq::Error::TooManyRedirects
            | ureq::Error::RedirectFailed
            | ureq::Error::HostNotFound
            | ureq::Error::Tls(_)
            | ureq::Error::Rustls(_)
    )
}

/// Writes everything that comes; says why it stopped, if not because it ended.
fn copy(mut body: impl Read, file: &mut File, bar: &ProgressBar) -> anyhow::Result<Option<String>> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match body.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                file.write_all(&buffer[..count]).context("cannot write what was downloaded")?;
                bar.inc(count as u64);
            }
            Err(error) => {
                file.sync_all()?;
                return Ok(Some(error.to_string()));
            }
        }
    }
    file.sync_all()?;
    Ok(None)
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// Where a part begins and how long the whole is: `bytes 5-9/10`, or `bytes */10` of a part that is not there.
fn range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (part, total) = text.split_once('/')?;
    let start = if part == "*" { 0 } else { part.split_once('-')?.0.parse().ok()? };
    Some((start, total.parse().ok()))
}

/// A file that is not whole yet, with what tells its version.
struct Part {
    path: PathBuf,
    tag: PathBuf,
}

impl Part {
    fn new(of: &Path) -> Self {
        let named = |ending: &str| PathBuf::from(format!("{}{ending}", of.display()));
        Self { path: named(".part"), tag: named(".part.etag") }
    }

    fn length(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |metadata| metadata.len())
    }

    fn tag(&self) -> Option<String> {
        std::fs::read_to_string(&self.tag).ok().filter(|tag| !tag.is_empty())
    }

    /// Keeps what tells this version from others, if the server says that it can go on with parts. Weak tags do not.
    fn remember(&self, headers: &HeaderMap) {
        let ranges = headers.get(ACCEPT_RANGES).is_none_or(|value| value != "none");
        let tag =
            headers.get(ETAG).and_then(|tag| tag.to_str().ok()).filter(|tag| tag.starts_with('"') && ranges);
        // Without a tag the next attempt asks for the rest all the same; hashes decide in the end.
        let _ = std::fs::write(&self.tag, tag.unwrap_or_default());
    }

    fn begin(&self) -> anyhow::Result<File> {
        File::create(&self.path).with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn append(&self) -> anyhow::Result<File> {
        let file = OpenOptions::new().write(true).open(&self.path);
        let mut file = file.with_context(|| format!("cannot write {}", self.path.display()))?;
        file.seek(SeekFrom::End(0))?;
        Ok(file)
    }

    /// Removes the part that was received, so that the next attempt begins anew.
    fn forget(&self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(&self.tag);
    }

    fn keep(&self, as_file: &Path) -> anyhow::Result<()> {
        std::fs::rename(&self.path, as_file)
            .with_context(|| format!("cannot write {}", as_file.display()))?;
        let _ = std::fs::remove_file(&self.tag);
        Ok(())
    }
}
