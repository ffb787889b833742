//! OpenTelemetry traces of uploads, from an agent to the coordinator's disk. Off unless a collector is named.
//!
//! Both ends compute the names of an upload's trace and of its spans from the upload itself: the agent, its life, the
//! number of the message and its bytes. So nothing travels with a message for the sake of tracing, and a message that is
//! sent again belongs to the same trace. Spans are sent as OTLP over plain HTTP in its JSON form, by a thread of their own;
//! when that cannot keep up they are dropped and counted, and nothing waits for it. See decision 0059.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use posse_core::session::UpFrame;
use posse_core::{AgentId, ConfigError, Incarnation, Uplink};
use ring::digest::{Context, SHA256};
use serde_json::{Value, json};
use tracing::warn;

/// Spans that may wait to be sent.
const QUEUE: usize = 4096;
/// Spans of one request.
const BATCH: usize = 512;
/// How long spans are gathered.
const GATHER: Duration = Duration::from_millis(500);
/// How long the collector may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends spans to a collector. Cheap to clone; when the last clone is dropped, what waits is still sent.
#[derive(Clone, Debug)]
pub struct Tracer {
    spans: SyncSender<Told>,
    service: &'static str,
    dropped: Arc<AtomicU64>,
}

enum Told {
    Span(Box<Span>),
    Flush(SyncSender<()>),
}

/// The identity of an upload's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceId([u8; 16]);

/// A step of an upload's way. All steps of one upload are in one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the first time that the agent sends it to the answer.
    Upload,
    /// From its arrival at the owner of the federation to the answer.
    #[cfg(feature = "coordinator")]
    Receive,
    /// Writing and syncing the batch that it is in.
    #[cfg(feature = "coordinator")]
    Log,
}

struct Span {
    trace: TraceId,
    way: Way,
    agent: AgentId,
    life: Incarnation,
    sequence: u64,
    start: SystemTime,
    end: SystemTime,
    service: &'static str,
}

/// An upload on its way: its trace, and when this process saw it first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traced {
    trace: TraceId,
    agent: AgentId,
    life: Incarnation,
    pub(crate) sequence: u64,
    pub(crate) since: SystemTime,
}

impl Tracer {
    /// Sends spans to the collector at `url`, for example `http://127.0.0.1:4318`, under the name of `service`. Fails if
    /// the address is not of plain HTTP: a collector on the same machine passes them on.
    pub fn new(url: &str, service: &'static str) -> Result<Self, ConfigError> {
        let wrong = || ConfigError::new("otlp", url, "it must look like http://127.0.0.1:4318");
        let place = url.strip_prefix("http://").ok_or_else(wrong)?;
        let (host, path) = place.split_once('/').unwrap_or((place, ""));
        let path = if path.is_empty() { "/v1/traces".to_owned() } else { format!("/{path}") };
        let host = if host.contains(':') { host.to_owned() } else { format!("{host}:4318") };
        if host.starts_with(':') || host.contains(['@', '?', ' ']) {
            return Err(wrong());
        }
        let (spans, queue) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new().name("posse-traces".into());
        let sends = thread.spawn(move || send_all(&queue, &host, &path));
        sends.map_err(|error| ConfigError::new("otlp", error, "a thread is needed to send traces"))?;
        Ok(Self { spans, service, dropped: Arc::default() })
    }

    /// Returns when everything that was told so far was sent, or could not be.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.spans.send(Told::Flush(done)).is_ok() {
            let _ = wait.recv();
        }
    }

    /// A message of an agent that begins its way here now.
    pub(crate) fn begin(agent: AgentId, frame: &UpFrame) -> Option<Traced> {
        let message = frame.message.as_ref()?;
        let (life, sequence) = (frame.incarnation, frame.sequence);
        let trace = TraceId::of(agent, life, sequence, message);
        Some(Traced { trace, agent, life, sequence, since: SystemTime::now() })
    }

    /// Tells the collector that a step of an upload's way lasted from `start` to now.
    pub(crate) fn tell(&self, upload: &Traced, way: Way, start: SystemTime) {
        let Traced { trace, agent, life, sequence, .. } = *upload;
        let (service, end) = (self.service, SystemTime::now());
        let span = Box::new(Span { trace, way, agent, life, sequence, start, end, service });
        if self.spans.try_send(Told::Span(span)).is_err() {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            if dropped.is_power_of_two() {
                warn!(dropped, "traces are made faster than the collector takes them: some are dropped");
            }
        }
    }
}

impl TraceId {
    fn of(agent: AgentId, life: Incarnation, sequence: u64, message: &Uplink) -> Self {
        let mut hash = Context::new(&SHA256);
        for part in [agent.0, life.0, sequence] {
            hash.update(&part.to_le_bytes());
        }
        hash.update(&posse_core::wire::encode_uplink(message));
        let mut id = [0; 16];
        id.copy_from_slice(&hash.finish().as_ref()[..16]);
        Self(id)
    }

    /// The name of a span of this trace.
    fn span(self, way: Way) -> [u8; 8] {
        let mut hash = Context::new(&SHA256);
        hash.update(&self.0);
        hash.update(way.name().as_bytes());
        let mut id = [0; 8];
        id.copy_from_slice(&hash.finish().as_ref()[..8]);
        id
    }
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            #[cfg(feature = "coordinator")]
            Self::Receive => "receive",
            #[cfg(feature = "coordinator")]
            Self::Log => "log",
        }
    }

    /// The step that this one is a part of, and the kind of span in OTLP's numbers.
    const fn place(self) -> (Option<Self>, u8) {
        match self {
            Self::Upload => (None, 3),
            #[cfg(feature = "coordinator")]
            Self::Receive => (Some(Self::Upload), 2),
            #[cfg(feature = "coordinator")]
            Self::Log => (Some(Self::Receive), 1),
        }
    }
}

impl Span {
    fn document(&self) -> Value {
        let (parent, kind) = self.way.place();
        let nanoseconds =
            |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string();
        let number =
            |key: &str, value: u64| json!({ "key": key, "value": { "intValue": value.to_string() } });
        json!({
            "traceId": hex(&self.trace.0),
            "spanId": hex(&self.trace.span(self.way)),
            "parentSpanId": parent.map_or_else(String::new, |parent| hex(&self.trace.span(parent))),
            "name": self.way.name(),
            "kind": kind,
            "startTimeUnixNano": nanoseconds(self.start),
            "endTimeUnixNano": nanoseconds(self.end),
            "attributes": [
                number("posse.agent", self.agent.0),
                number("posse.life", self.life.0),
                number("posse.sequence", self.sequence),
            ],
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Gathers spans and sends them, until no tracer is left.
fn send_all(queue: &Receiver<Told>, host: &str, path: &str) {
    let mut batch: Vec<Box<Span>> = Vec::new();
    let mut well = true;
    loop {
        let told = if batch.is_empty() {
            queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            queue.recv_timeout(GATHER)
        };
        let (flushed, over) = match told {
            Ok(Told::Span(span)) => {
                batch.push(span);
                if batch.len() < BATCH {
                    continue;
                }
                (None, false)
            }
            Ok(Told::Flush(done)) => (Some(done), false),
            Err(RecvTimeoutError::Timeout) => (None, false),
            Err(RecvTimeoutError::Disconnected) => (None, true),
        };
        if !batch.is_empty() {
            let sent = send(&batch, host, path);
            if let (Err(error), true) = (&sent, well) {
                warn!(collector = host, %error, "traces cannot be sent");
            }
            well = sent.is_ok();
            batch.clear();
        }
        if let Some(done) = flushed {
            let _ = done.send(());
        }
        if over {
            return;
        }
    }
}

fn send(batch: &[Box<Span>], host: &str, path: &str) -> std::io::Result<()> {
    let service = batch.first().map_or("posse", |span| span.service);
    let spans: Vec<Value> = batch.iter().map(|span| span.document()).collect();
    let body = json!({ "resourceSpans": [{
        "resource": { "attributes": [
            { "key": "service.name", "value": { "stringValue": service } },
            { "key": "service.version", "value": { "stringValue": env!("CARGO_PKG_VERSION") } },
        ] },
        "scopeSpans": [{ "scope": { "name": "posse" }, "spans": spans }],
    }] })
    .to_string();
    let nowhere = || std::io::Error::new(std::io::ErrorKind::NotFound, "the collector's name has no address");
    let address = host.to_socket_addrs()?.next().ok_or_else(nowhere)?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    if answer.get(9) == Some(&b'2') {
        return Ok(());
    }
    Err(std::io::Error::other(format!("it answered {}", String::from_utf8_lossy(&answer))))
}
