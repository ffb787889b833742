//! Zip archives: which files are in one, and what is in them. Stored and deflated members are read, which is what
//! publishers use; encrypted ones and those of more than 4 GB are not.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::path::Path;

use flate2::read::DeflateDecoder;

const END: [u8; 4] = *b"PK\x05\x06";
const ENTRY: [u8; 4] = *b"PK\x01\x02";
const LOCAL: [u8; 4] = *b"PK\x03\x04";
/// The record at the end of an archive, and the longest comment behind it.
const END_LENGTH: u64 = 22;
const LONGEST_COMMENT: u64 = 0xffff;

/// A ZIP archive on a disk.
#[derive(Debug)]
pub struct Archive {
    file: File,
    members: Vec<Member>,
}

/// A file in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name, with the directories in the archive.
    pub name: String,
    /// How many bytes it has, unpacked.
    pub length: u64,
    compressed: u64,
    offset: u64,
    method: u16,
    checksum: u32,
}

impl Archive {
    /// Opens an archive and reads its directory.
    pub fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let tail = length.min(END_LENGTH + LONGEST_COMMENT);
        file.seek(SeekFrom::Start(length - tail))?;
        let mut end = Vec::new();
        file.read_to_end(&mut end)?;
        let at = (0..end.len().saturating_sub(END_LENGTH as usize - 1))
            .rev()
            .find(|at| end[*at..].starts_with(&END));
        let end = &end[at.ok_or_else(|| broken("it has no directory: is it whole?"))?..];
        let (count, size, start) = (u16_at(end, 10), u64::from(u32_at(end, 12)), u64::from(u32_at(end, 16)));
        if start.checked_add(size).is_none_or(|end| end > length) {
            return Err(broken("its directory lies outside of it"));
        }
        file.seek(SeekFrom::Start(start))?;
        let mut directory = vec![0; usize::try_from(size).map_err(|_| broken("its directory is too long"))?];
        file.read_exact(&mut directory)?;
        let mut rest = directory.as_slice();
        let mut members = Vec::new();
        for _ in 0..count {
            let (member, after) = entry(rest)?;
            members.push(member);
            rest = after;
        }
        Ok(Self { file, members })
    }

    /// The files in the archive, in the order of its directory.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The file of this name, in whichever directory of the archive it is.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name.rsplit('/').next() == Some(name))
    }

    /// Unpacks a file and compares it with its checksum.
    pub fn unpack(&mut self, member: &Member, mut to: impl Write) -> Result<()> {
        let mut header = [0; 30];
        self.file.seek(SeekFrom::Start(member.offset))?;
        self.file.read_exact(&mut header)?;
        if !header.starts_with(&LOCAL) {
            return Err(broken("a file in it is not where its directory says"));
        }
        let before = u64::from(u16_at(&header, 26)) + u64::from(u16_at(&header, 28));
        self.file.seek(SeekFrom::Start(member.offset + 30 + before))?;
        let packed = (&self.file).take(member.compressed);
        let mut check = Checked { to: &mut to, checksum: flate2::Crc::new() };
        match member.method {
            0 => std::io::copy(&mut { packed }, &mut check)?,
            8 => std::io::copy(&mut DeflateDecoder::new(packed), &mut check)?,
            _ => return Err(broken("a file in it is packed in a way that is not known here")),
        };
        let found = check.checksum;
        if found.sum() != member.checksum || u64::from(found.amount()) != member.length & 0xffff_ffff {
            return Err(broken("a file in it does not have its checksum"));
        }
        to.flush()
    }
}

/// Passes bytes on and adds them up.
struct Checked<'a, W> {
    to: &'a mut W,
    checksum: flate2::Crc,
}

impl<W: Write> Write for Checked<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let written = self.to.write(bytes)?;
        self.checksum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> Result<()> {
        self.to.flush()
    }
}

/// The first entry of a directory, and what comes after it.
fn entry(directory: &[u8]) -> Result<(Member, &[u8])> {
    let short = || broken("its directory ends too early");
    let header = directory.get(..46).ok_or_else(short)?;
    if !header.starts_with(&ENTRY) {
        return Err(broken("its directory is damaged"));
    }
    let lengths = [28, 30, 32].map(|at| usize::from(u16_at(header, at)));
    let name = directory.get(46..46 + lengths[0]).ok_or_else(short)?;
    let rest = directory.get(46 + lengths.iter().sum::<usize>()..).ok_or_else(short)?;
    let sizes = [20, 24, 42].map(|at| u32_at(header, at));
    if u16_at(header, 8) & 1 == 1 || sizes.contains(&u32::MAX) {
        return Err(broken("a file in it is encrypted or longer than 4 GB"));
    }
    let [compressed, length, offset] = sizes.map(u64::from);
    let member = Member {
        name: String::from_utf8_lossy(name).into_owned(),
        length,
        compressed,
        offset,
        method: u16_at(header, 10),
        checksum: u32_at(header, 16),
    };
    Ok((member, rest))
}

/// Two bytes, which the caller knows to be there.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Four bytes, which the caller knows to be there.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn broken(why: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("this is not a zip archive that can be read: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::DeflateEncoder;

    /// An archive of these files, every second one stored.
    fn packed(files: &[(&str, &[u8])]) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for (index, (name, bytes)) in files.iter().enumerate() {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(bytes).unwrap();
            let (method, body) =
                if index % 2 == 0 { (8u16, encoder.finish().unwrap()) } else { (0, bytes.to_vec()) };
            let mut crc = flate2::Crc::new();
            crc.update(bytes);
            let mut common = Vec::new();
            common.extend([20, 0, 0, 0]);
            common.extend(method.to_le_bytes());
            common.extend([0; 4]);
            for number in [crc.sum(), body.len() as u32, bytes.len() as u32] {
                common.extend(number.to_le_bytes());
            }
            common.extend((name.len() as u16).to_le_bytes());
            common.extend([0; 2]);
            directory.extend(ENTRY);
            directory.extend([20, 0]);
            directory.extend(&common);
            directory.extend([0; 10]);
            directory.extend((out.len() as u32).to_le_bytes());
            directory.extend(name.as_bytes());
            out.extend(LOCAL);
            out.extend(&common);
            out.extend(name.as_bytes());
            out.extend(body);
        }
        let start = out.len() as u32;
        let size = directory.len() as u32;
        out.extend(directory);
        out.extend(END);
        out.extend([0; 4]);
        out.extend((files.len() as u16).to_le_bytes());
        out.extend((files.len() as u16).to_le_bytes());
        out.extend(size.to_le_bytes());
        out.extend(start.to_le_bytes());
        out.extend(7u16.to_le_bytes());
        out.extend(b"comment");
        out
    }

    fn opened(bytes: &[u8]) -> Result<Archive> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        Archive::open(file.path())
    }

    #[test]
    fn files_come_out_as_they_went_in() {
        let long: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(i) % 251) as u8).collect();
        let files: [(&str, &[u8]); 3] = [("set/a.csv", b"1,2\n3,4\n"), ("set/b.csv", &long), ("c.txt", b"")];
        let mut archive = opened(&packed(&files)).unwrap();
        assert_eq!(archive.members().len(), 3);
        for (name, bytes) in files {
            let member = archive.find(name.rsplit('/').next().unwrap()).unwrap().clone();
            assert_eq!((member.name.as_str(), member.length), (name, bytes.len() as u64));
            let mut out = Vec::new();
            archive.unpack(&member, &mut out).unwrap();
            assert!(out == bytes, "{name}");
        }
        assert_eq!(archive.find("d.csv"), None);
    }

    #[test]
    fn damage_is_noticed() {
        let whole = packed(&[("a", b"hello hello hello hello")]);
        for end in 0..whole.len() - 8 {
            assert!(opened(&whole[..end]).is_err(), "cut at {end}");
        }
        opened(b"no archive at all, but long enough to be one").unwrap_err();
        let mut changed = whole.clone();
        // Within the packed bytes of the only member.
        changed[33] ^= 0x55;
        let mut archive = opened(&changed).unwrap();
        let member = archive.find("a").unwrap().clone();
        archive.unpack(&member, Vec::new()).unwrap_err();
    }
}
