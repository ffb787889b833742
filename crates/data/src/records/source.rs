//! The bytes of a raw file: counted and hashed on their way, decompressed if need be.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};

use super::RawFile;
use crate::error::Problem;
use crate::store::hexadecimal;

/// A raw file, shared by the decoder that reads it and the progress that counts its bytes.
#[derive(Clone, Debug)]
pub(super) struct Source {
    tap: Rc<RefCell<Tap>>,
    compressed: bool,
}

#[derive(Debug)]
struct Tap {
    file: File,
    /// Bytes that were looked at before the decoder was made.
    first: Vec<u8>,
    hasher: Sha256,
    count: u64,
}

impl Read for Tap {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = if self.first.is_empty() {
            self.file.read(buffer)?
        } else {
            let length = self.first.len().min(buffer.len());
            buffer[..length].copy_from_slice(&self.first[..length]);
            self.first.drain(..length);
            length
        };
        self.hasher.update(&buffer[..length]);
        self.count += length as u64;
        Ok(length)
    }
}

struct Shared(Rc<RefCell<Tap>>);

impl Read for Shared {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(buffer)
    }
}

impl Source {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut first = Vec::new();
        file.by_ref().take(2).read_to_end(&mut first)?;
        let compressed = first == [0x1f, 0x8b];
        let tap = Tap { file, first, hasher: Sha256::new(), count: 0 };
        Ok(Self { tap: Rc::new(RefCell::new(tap)), compressed })
    }

    /// A reader of the text, decompressed if the file is compressed.
    pub(super) fn reader(&self) -> io::Result<Box<dyn Read>> {
        let shared = Shared(Rc::clone(&self.tap));
        let buffered = io::BufReader::with_capacity(1 << 16, shared);
        Ok(if self.compressed { Box::new(MultiGzDecoder::new(buffered)) } else { Box::new(buffered) })
    }

    /// Bytes of the file read so far.
    pub(super) fn count(&self) -> u64 {
        self.tap.borrow().count
    }

    /// Turns an error of the reader into a problem: a damaged archive if the file is compressed.
    pub(super) fn problem(&self, error: &io::Error) -> Problem {
        if self.compressed { Problem::Compression(error.to_string()) } else { Problem::from_io(error) }
    }

    /// Reads the file to its end and returns its name, length and hash.
    pub(super) fn finish(self, path: &Path) -> io::Result<RawFile> {
        io::copy(&mut Shared(Rc::clone(&self.tap)), &mut io::sink())?;
        let tap = self.tap.borrow();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let sha256 = hexadecimal(&tap.hasher.clone().finalize());
        Ok(RawFile { file, bytes: tap.count, sha256 })
    }
}
