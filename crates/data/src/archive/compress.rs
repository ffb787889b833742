//! Files of the Unix program `compress` (ending in `.Z`), which a few old data sets still come as: LZW with codes of
//! 9 to 16 bits.

use std::io::{Error, ErrorKind, Read, Result, Write};

/// The bytes that every such file begins with.
const MAGIC: [u8; 2] = [0x1f, 0x9d];
/// The code after which the table starts anew, in files that allow it.
const CLEAR: usize = 256;

/// Reads a compressed file to its end and writes what is in it. Fails on anything that `compress` cannot have written.
pub fn decompress(mut from: impl Read, mut to: impl Write) -> Result<()> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes)?;
    let (header, body) = bytes.split_at_checked(3).ok_or_else(|| broken("it ends too early"))?;
    if header[..2] != MAGIC {
        return Err(broken("it does not begin as a compressed file does"));
    }
    let (most_bits, block_mode) = (u32::from(header[2] & 0x1f), header[2] & 0x80 != 0);
    if !(9..=16).contains(&most_bits) {
        return Err(broken("its codes have a length that is not possible"));
    }
    Decoder::new(body, most_bits, block_mode).run(&mut to)
}

struct Decoder<'a> {
    bytes: &'a [u8],
    /// The next bit to be read.
    position: usize,
    /// Where the codes of this length began: they come in groups of eight, and a group is always read whole.
    group: usize,
    bits: u32,
    most_bits: u32,
    block_mode: bool,
    /// For each code, the code it continues and the byte it adds. Bytes and the clear code continue nothing.
    table: Vec<(u16, u8)>,
}

impl<'a> Decoder<'a> {
    fn new(bytes: &'a [u8], most_bits: u32, block_mode: bool) -> Self {
        let table = (0..=255).map(|byte| (0, byte)).collect();
        let mut decoder = Self { bytes, position: 0, group: 0, bits: 9, most_bits, block_mode, table };
        decoder.reset();
        decoder
    }

    fn reset(&mut self) {
        self.table.truncate(256);
        if self.block_mode {
            self.table.push((0, 0));
        }
        self.bits = 9;
    }

    /// The next code, of as many bits as codes have now; `None` at the end.
    fn code(&mut self) -> Option<usize> {
        if self.position + self.bits as usize > 8 * self.bytes.len() {
            return None;
        }
        let bit = |at: usize| usize::from(self.bytes[at / 8] >> (at % 8) & 1);
        let code = (0..self.bits as usize).map(|i| bit(self.position + i) << i).sum();
        self.position += self.bits as usize;
        Some(code)
    }

    /// Codes get another length: what is left of their group of eight is padding.
    fn change_bits(&mut self, bits: u32) {
        let group = 8 * self.bits as usize;
        self.position = self.group + (self.position - self.group).div_ceil(group) * group;
        self.group = self.position;
        self.bits = bits;
    }

    fn run(mut self, to: &mut impl Write) -> Result<()> {
        let mut text = Vec::new();
        let mut last: Option<(usize, u8)> = None;
        while let Some(code) = self.code() {
            if code == CLEAR && self.block_mode {
                self.change_bits(9);
                self.reset();
                last = None;
                continue;
            }
            text.clear();
            let mut at = code;
            match last {
                None if code < 256 => {}
                None => return Err(broken("its first code is none of a byte")),
                // The one code that is used before it is known: the last text and its own first byte.
                Some((previous, first)) if code == self.table.len() => {
                    text.push(first);
                    at = previous;
                }
                Some(_) if code < self.table.len() => {}
                Some(_) => return Err(broken("it has a code that is not in its table")),
            }
            while at >= 256 {
                let (before, byte) = self.table[at];
                text.push(byte);
                at = usize::from(before);
            }
            let first = at as u8;
            text.push(first);
            text.reverse();
            to.write_all(&text)?;
            if let Some((previous, _)) = last
                && self.table.len() < 1 << self.most_bits
            {
                let previous = u16::try_from(previous).map_err(|_| broken("it has too many codes"))?;
                self.table.push((previous, first));
                if self.table.len() == 1 << self.bits && self.bits < self.most_bits {
                    self.change_bits(self.bits + 1);
                }
            }
            last = Some((code, first));
        }
        Ok(())
    }
}

fn broken(why: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("this is not a whole file of `compress`: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The writing side of the format, for tests: the same table, grown one code behind the reader's.
    fn compress(bytes: &[u8], most_bits: u32) -> Vec<u8> {
        let mut out = vec![MAGIC[0], MAGIC[1], 0x80 | most_bits as u8];
        let (mut buffer, mut bits) = (Vec::<bool>::new(), 9);
        let mut table = std::collections::BTreeMap::<Vec<u8>, usize>::new();
        let mut next = 257;
        let code_of = |table: &std::collections::BTreeMap<Vec<u8>, usize>, text: &[u8]| match text {
            [byte] => usize::from(*byte),
            text => table[text],
        };
        let mut group = 0;
        let mut text: Vec<u8> = Vec::new();
        let emit = |buffer: &mut Vec<bool>, code: usize, bits: u32| {
            (0..bits).for_each(|i| buffer.push(code >> i & 1 == 1));
        };
        for &byte in bytes {
            let longer: Vec<u8> = text.iter().copied().chain([byte]).collect();
            if longer.len() == 1 || table.contains_key(&longer) {
                text = longer;
                continue;
            }
            emit(&mut buffer, code_of(&table, &text), bits);
            if next < 1 << most_bits {
                table.insert(longer, next);
                next += 1;
                // The reader's table is one entry behind.
                if next > 1 << bits && bits < most_bits {
                    let whole = 8 * bits as usize;
                    let padded = group + (buffer.len() - group).div_ceil(whole) * whole;
                    buffer.resize(padded, false);
                    group = padded;
                    bits += 1;
                }
            }
            text = vec![byte];
        }
        if !text.is_empty() {
            emit(&mut buffer, code_of(&table, &text), bits);
        }
        out.extend(
            buffer
                .chunks(8)
                .map(|byte| byte.iter().enumerate().map(|(i, bit)| u8::from(*bit) << i).sum::<u8>()),
        );
        out
    }

    #[test]
    fn what_was_compressed_comes_back() {
        let numbers: String = (0..20_000).map(|i| format!("{} {}\n", i * 7919 % 104_729, i % 13)).collect();
        for text in [
            b"".as_slice(),
            b"a",
            b"aaaaaaaaaaaaaaaaaaaaaaa",
            b"TOBEORNOTTOBEORTOBEORNOT",
            numbers.as_bytes(),
        ] {
            for most_bits in [9, 12, 16] {
                let mut back = Vec::new();
                decompress(compress(text, most_bits).as_slice(), &mut back).unwrap();
                assert!(back == text, "{most_bits} bits, {} bytes", text.len());
            }
        }
    }

    /// Written by the program itself: `printf 'abcabcabcabc\n' | compress`.
    #[test]
    fn a_file_of_the_program_itself_is_read() {
        let file = [0x1f, 0x9d, 0x90, 0x61, 0xc4, 0x8c, 0x09, 0x38, 0x50, 0x20, 0x41, 0x05];
        let mut text = Vec::new();
        decompress(file.as_slice(), &mut text).unwrap();
        assert_eq!(text, b"abcabcabcabc\n");
    }

    #[test]
    fn anything_else_is_refused() {
        for bytes in [b"".as_slice(), b"PK\x03\x04", &[0x1f, 0x9d, 0x9f], &[0x1f, 0x9d, 0x90, 0xff, 0xff]] {
            decompress(bytes, Vec::new()).unwrap_err();
        }
    }
}
