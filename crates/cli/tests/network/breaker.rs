//! A way between agents and a coordinator that breaks: in the middle of a frame, of a header, of a handshake.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use posse_core::{Seed, Stream};

/// Passes on what comes to a free port, in pieces of any size, and cuts a connection now and then.
pub(crate) struct Breaker {
    pub(crate) port: u16,
}

impl Breaker {
    /// Begins to pass on to `target`. It goes on as long as the test does.
    pub(crate) fn start(target: u16, seed: Seed) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for (number, near) in listener.incoming().flatten().enumerate() {
                // Nobody listens at the target, so the connection is closed.
                let Ok(far) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                for (name, from, to) in [("up", &near, &far), ("down", &far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let random = seed.stream(name, number as u64, 0);
                    thread::spawn(move || pass_on(from, to, random));
                }
            }
        });
        Self { port }
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, mut random: Stream) {
    let mut buffer = [0; 2000];
    loop {
        let most = 1 + random.below(buffer.len() as u64) as usize;
        let is_cut = random.below(60) == 0;
        match from.read(&mut buffer[..most]) {
            Ok(count) if count > 0 && !is_cut && to.write_all(&buffer[..count]).is_ok() => {}
            _ => break,
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
