//! Messages and states as bytes: 64-bit numbers, one after the other, low byte first.

use posse_core::{DecodeError, Evidence, Extension, ProtocolError, packed};

use crate::NAME;

/// The version of these messages.
const VERSION: u64 = 1;

/// Writes numbers one after the other, in little-endian bytes.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn integer(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    pub(crate) fn evidence(&mut self, evidence: &Evidence) {
        self.integer(evidence.dimension() as u64);
        self.integer(evidence.count());
        for value in evidence.gram().iter().chain(evidence.moment()) {
            self.0.extend(value.to_le_bytes());
        }
    }
}

/// Reads what a [`Writer`] wrote.
#[derive(Debug)]
pub(crate) struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    pub(crate) const fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn integer(&mut self) -> Result<u64, DecodeError> {
        let (first, rest) = self.0.split_first_chunk::<8>().ok_or_else(cut_short)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*first))
    }

    /// Evidence of this dimension.
    pub(crate) fn evidence(&mut self, dimension: usize) -> Result<Evidence, DecodeError> {
        if self.integer()? != dimension as u64 {
            return Err(DecodeError::invalid("evidence", "it has another dimension"));
        }
        let count = self.integer()?;
        let mut numbers =
            |n: usize| (0..n).map(|_| Ok(f64::from_bits(self.integer()?))).collect::<Result<Vec<_>, _>>();
        let (gram, moment) = (numbers(packed(dimension))?, numbers(dimension)?);
        Evidence::from_parts(gram, moment, count)
            .map_err(|_| DecodeError::invalid("evidence", "no observations give these numbers"))
    }

    pub(crate) fn end(self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::invalid("state", "it is too long")) }
    }
}

fn cut_short() -> DecodeError {
    DecodeError::invalid("state", "it is cut short")
}

/// Two numbers and sums. From an agent: zeros, and all that it ever observed. From the coordinator: its version, how
/// many observations of the agent it has, and the sums of all other agents.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Note {
    pub(crate) version: u64,
    pub(crate) confirmed: u64,
    pub(crate) evidence: Evidence,
}

impl Note {
    pub(crate) fn encode(&self) -> Extension {
        let mut writer = Writer::default();
        writer.integer(self.version);
        writer.integer(self.confirmed);
        writer.evidence(&self.evidence);
        let scalars = (packed(self.evidence.dimension()) + self.evidence.dimension() + 1) as u64;
        Extension { algorithm: NAME.to_owned(), version: VERSION, scalars, bytes: writer.0 }
    }

    pub(crate) fn decode(extension: &Extension, dimension: usize) -> Result<Self, ProtocolError> {
        if extension.algorithm != NAME || extension.version != VERSION {
            return Err(ProtocolError::Unexpected { algorithm: NAME, message: "extension" });
        }
        let mut reader = Reader::new(&extension.bytes);
        let read = |reader: &mut Reader<'_>| {
            Ok::<_, DecodeError>(Self {
                version: reader.integer()?,
                confirmed: reader.integer()?,
                evidence: reader.evidence(dimension)?,
            })
        };
        let note = read(&mut reader).map_err(|_| ProtocolError::Evidence("the bytes are not sums"))?;
        reader.end().map_err(|_| ProtocolError::Evidence("the bytes are not sums"))?;
        Ok(note)
    }
}
