//! A way between two processes that a test closes, holds up or breaks whenever it likes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

/// What becomes of what comes to a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Bytes pass as they come.
    Open,
    /// Bytes wait at the gate until it is open again.
    Held,
    /// Connections end, and new ones too.
    Cut,
}

/// A gate. All clones are the same one, and a gate may be in several ways at once.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    way: Mutex<Way>,
    changed: Condvar,
    /// How to end every connection that has passed.
    connections: Mutex<Vec<Box<dyn Fn() + Send>>>,
    /// Decides when connections break by themselves, if they do.
    breaks: Option<Box<dyn Fn(u64) -> Luck + Send + Sync>>,
    /// How many directions of connections there were.
    directions: AtomicU64,
}

/// Draws a number below a limit.
pub type Luck = Box<dyn FnMut(u64) -> u64 + Send>;

/// A connection of either kind.
trait Connection: Read + Write + Send + Sized + 'static {
    fn copy(&self) -> Self;
    fn end(&self);
}

impl Connection for TcpStream {
    fn copy(&self) -> Self {
        self.try_clone().expect("a connection can be copied")
    }
    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Connection for UnixStream {
    fn copy(&self) -> Self {
        self.try_clone().expect("a connection can be copied")
    }
    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Gate").field(&self.0.way).finish()
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// An open gate.
    #[must_use]
    pub fn new() -> Self {
        Self::made(None)
    }

    /// An open gate that passes bytes on in pieces of any size, and ends a connection after a piece in sixty: in the middle
    /// of a frame, of a header, of a handshake. `luck` gives each direction of each connection numbers of its own.
    #[must_use]
    pub fn breaking(luck: impl Fn(u64) -> Luck + Send + Sync + 'static) -> Self {
        Self::made(Some(Box::new(luck)))
    }

    fn made(breaks: Option<Box<dyn Fn(u64) -> Luck + Send + Sync>>) -> Self {
        Self(Arc::new(Inner {
            way: Mutex::new(Way::Open),
            changed: Condvar::new(),
            connections: Mutex::default(),
            breaks,
            directions: AtomicU64::new(0),
        }))
    }

    /// Opens or closes the gate, for connections that have passed it as well.
    pub fn set(&self, way: Way) {
        *self.0.way.lock().unwrap_or_else(PoisonError::into_inner) = way;
        if way == Way::Cut {
            let mut connections = self.0.connections.lock().unwrap_or_else(PoisonError::into_inner);
            connections.drain(..).for_each(|end| end());
        }
        self.0.changed.notify_all();
    }

    /// Stands before a port of loopback from here on, as long as the test runs. Returns the port of the gate.
    ///
    /// # Panics
    /// If loopback has no free port.
    #[must_use]
    pub fn before_port(&self, target: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
        let port = listener.local_addr().expect("it was just bound").port();
        let gate = self.clone();
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                gate.let_in(&near, || TcpStream::connect(("127.0.0.1", target)));
            }
        });
        port
    }

    /// Stands before a socket in the file system, at a path that every user may come to.
    ///
    /// # Panics
    /// If there can be no socket at that path.
    pub fn before_socket(&self, path: &Path, target: &Path) {
        let listener = UnixListener::bind(path).expect("a path for a socket");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("it is ours");
        let (gate, target) = (self.clone(), target.to_owned());
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                gate.let_in(&near, || UnixStream::connect(&target));
            }
        });
    }

    fn let_in<C: Connection>(&self, near: &C, connect: impl Fn() -> std::io::Result<C>) {
        if *self.0.way.lock().unwrap_or_else(PoisonError::into_inner) == Way::Cut {
            return;
        }
        // Nobody listens at the target, so the connection is closed.
        let Ok(far) = connect() else { return };
        let (one, other) = (near.copy(), far.copy());
        let mut connections = self.0.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.push(Box::new(move || {
            one.end();
            other.end();
        }));
        drop(connections);
        for (from, to) in [(near.copy(), far.copy()), (far.copy(), near.copy())] {
            let gate = self.clone();
            let number = self.0.directions.fetch_add(1, Ordering::SeqCst);
            let luck = self.0.breaks.as_ref().map(|luck| luck(number));
            thread::spawn(move || gate.pass(from, to, luck));
        }
    }

    fn pass<C: Connection>(&self, mut from: C, mut to: C, mut luck: Option<Luck>) {
        let mut buffer = [0; 8192];
        loop {
            let most = luck.as_mut().map_or(buffer.len(), |below| 1 + below(2000) as usize);
            let breaks = luck.as_mut().is_some_and(|below| below(60) == 0);
            let Ok(count @ 1..) = from.read(&mut buffer[..most]) else { break };
            let way = self.0.way.lock().unwrap_or_else(PoisonError::into_inner);
            let held = self.0.changed.wait_while(way, |way| *way == Way::Held);
            let is_cut = *held.unwrap_or_else(PoisonError::into_inner) == Way::Cut;
            if is_cut || breaks || to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        from.end();
        to.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that says everything again.
    fn echo() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut buffer = [0; 512];
                    while let Ok(count @ 1..) = stream.read(&mut buffer) {
                        if stream.write_all(&buffer[..count]).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        port
    }

    fn said_again(stream: &mut TcpStream) -> bool {
        let mut heard = [0; 3];
        stream.write_all(b"abc").is_ok() && stream.read_exact(&mut heard).is_ok() && &heard == b"abc"
    }

    #[test]
    fn a_gate_passes_what_comes_until_it_is_cut_and_again_afterwards() {
        let gate = Gate::new();
        let port = gate.before_port(echo());
        let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut stream = connect();
        assert!(said_again(&mut stream));
        gate.set(Way::Cut);
        assert!(!said_again(&mut stream), "a connection that has passed is cut too");
        assert!(!said_again(&mut connect()), "and new ones");
        gate.set(Way::Open);
        assert!(said_again(&mut connect()));
    }

    #[test]
    fn what_is_held_arrives_when_the_gate_opens() {
        let (gate, echo) = (Gate::new(), echo());
        let mut stream = TcpStream::connect(("127.0.0.1", gate.before_port(echo))).unwrap();
        let mut beside = TcpStream::connect(("127.0.0.1", echo)).unwrap();
        assert!(said_again(&mut stream));
        gate.set(Way::Held);
        stream.write_all(b"late").unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut heard = [0; 4];
        for _ in 0..100 {
            assert!(said_again(&mut beside), "beside the gate there was time enough");
            assert!(stream.read(&mut heard).is_err(), "nothing comes while it is held");
        }
        gate.set(Way::Open);
        stream.set_nonblocking(false).unwrap();
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"late");
    }

    #[test]
    fn a_breaking_gate_ends_every_connection_sooner_or_later() {
        // Every sixtieth number is zero, whatever the limit.
        let gate = Gate::breaking(|_| {
            let mut drawn = 0;
            Box::new(move |limit| {
                drawn += 1;
                drawn % limit
            })
        });
        let port = gate.before_port(echo());
        for _ in 0..5 {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let passed = (0..100_000).take_while(|_| said_again(&mut stream)).count();
            assert!(passed < 100_000);
        }
    }
}
