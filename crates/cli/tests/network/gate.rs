//! A way between two processes that a test closes, or holds up, whenever it likes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// What becomes of what comes to a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Bytes pass as they come.
    Open,
    /// Bytes wait at the gate until it is open again.
    Held,
    /// Connections end, and new ones too.
    Cut,
}

/// A gate. All clones are the same one, and a gate may be in several ways at once.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Inner>);

struct Inner {
    way: Mutex<Way>,
    changed: Condvar,
    /// How to end every connection that has passed.
    connections: Mutex<Vec<Box<dyn Fn() + Send>>>,
}

/// A connection of either kind.
trait Connection: Read + Write + Send + Sized + 'static {
    fn copy(&self) -> Self;
    fn end(&self);
}

impl Connection for TcpStream {
    fn copy(&self) -> Self {
        self.try_clone().unwrap()
    }
    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Connection for UnixStream {
    fn copy(&self) -> Self {
        self.try_clone().unwrap()
    }
    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            way: Mutex::new(Way::Open),
            changed: Condvar::new(),
            connections: Mutex::default(),
        }))
    }

    pub(crate) fn set(&self, way: Way) {
        *self.0.way.lock().unwrap() = way;
        if way == Way::Cut {
            self.0.connections.lock().unwrap().drain(..).for_each(|end| end());
        }
        self.0.changed.notify_all();
    }

    /// Stands before a port of loopback from here on. Returns the port of the gate.
    pub(crate) fn before_port(&self, target: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let gate = self.clone();
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                gate.let_in(near, || TcpStream::connect(("127.0.0.1", target)));
            }
        });
        port
    }

    /// Stands before a socket in the file system, at a path that every user may come to.
    pub(crate) fn before_socket(&self, path: &Path, target: &Path) {
        let listener = UnixListener::bind(path).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
        let (gate, target) = (self.clone(), target.to_owned());
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                gate.let_in(near, || UnixStream::connect(&target));
            }
        });
    }

    fn let_in<C: Connection>(&self, near: C, connect: impl Fn() -> std::io::Result<C>) {
        if *self.0.way.lock().unwrap() == Way::Cut {
            return;
        }
        // Nobody listens at the target, so the connection is closed.
        let Ok(far) = connect() else { return };
        let (one, other) = (near.copy(), far.copy());
        self.0.connections.lock().unwrap().push(Box::new(move || {
            one.end();
            other.end();
        }));
        for (from, to) in [(near.copy(), far.copy()), (far, near)] {
            let gate = self.clone();
            thread::spawn(move || gate.pass(from, to));
        }
    }

    fn pass<C: Connection>(&self, mut from: C, mut to: C) {
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let way = self.0.way.lock().unwrap();
            let way = self.0.changed.wait_while(way, |way| *way == Way::Held).unwrap();
            let is_cut = *way == Way::Cut;
            drop(way);
            if is_cut || to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        from.end();
        to.end();
    }
}
