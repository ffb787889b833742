//! `Packed` of message.proto, read and written many numbers at a time. Nearly all bytes of an upload are in one, and the code
//! that is generated for a repeated field reads and writes it number by number.

use prost::bytes::{Buf, BufMut, Bytes};
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};

/// The field `entries` of `Packed`.
const ENTRIES: u32 = 1;
/// The bytes of a number.
const NUMBER: usize = size_of::<f64>();
/// How many numbers are written at a time.
const AT_A_TIME: usize = 64;

/// A symmetric matrix: entry (i, j), i >= j, is number i(i+1)/2 + j.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Packed {
    /// The lower half, row by row.
    pub entries: Vec<f64>,
}

impl Message for Packed {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        if self.entries.is_empty() {
            return;
        }
        encoding::encode_key(ENTRIES, WireType::LengthDelimited, buffer);
        encoding::encode_varint((NUMBER * self.entries.len()) as u64, buffer);
        let mut bytes = [0; NUMBER * AT_A_TIME];
        for numbers in self.entries.chunks(AT_A_TIME) {
            for (place, number) in bytes.chunks_exact_mut(NUMBER).zip(numbers) {
                place.copy_from_slice(&number.to_le_bytes());
            }
            buffer.put_slice(&bytes[..NUMBER * numbers.len()]);
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        if tag != ENTRIES {
            return encoding::skip_field(wire_type, tag, buffer, context);
        }
        if wire_type == WireType::SixtyFourBit {
            // Peers may write a repeated field one by one.
            return encoding::double::merge_repeated(wire_type, &mut self.entries, buffer, context);
        }
        // On the wire, numbers one after the other are their bytes and how many these are.
        let mut bytes = Bytes::new();
        encoding::bytes::merge(wire_type, &mut bytes, buffer, context.clone())?;
        let (numbers, rest) = bytes.as_chunks::<NUMBER>();
        if !rest.is_empty() {
            // It is refused as every number is that is cut off.
            return encoding::double::merge(WireType::SixtyFourBit, &mut 0.0, &mut &*rest, context);
        }
        self.entries.extend(numbers.iter().map(|number| f64::from_le_bytes(*number)));
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        encoding::double::encoded_len_packed(ENTRIES, &self.entries)
    }

    fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What prost makes of the field.
    #[derive(Clone, PartialEq, Message)]
    struct Generated {
        #[prost(double, repeated, tag = "1")]
        entries: Vec<f64>,
    }

    fn numbers(length: usize) -> Vec<f64> {
        (0..length).map(|i| (i as f64 - 3.5).exp2()).collect()
    }

    #[test]
    fn bytes_and_lengths_are_those_of_the_generated_code() {
        for length in [0, 1, 2, 63, 64, 65, 325, 5050] {
            let entries = numbers(length);
            let (ours, generated) = (Packed { entries: entries.clone() }, Generated { entries });
            let bytes = generated.encode_to_vec();
            assert_eq!(ours.encode_to_vec(), bytes);
            assert_eq!(ours.encoded_len(), bytes.len());
            assert_eq!(Packed::decode(&*bytes).unwrap(), ours);
        }
    }

    #[test]
    fn what_the_generated_code_reads_is_read_alike() {
        // In two parts, one by one, with a field that nobody knows, and all of it in pieces.
        let mut bytes = Generated { entries: numbers(70) }.encode_to_vec();
        encoding::double::encode(ENTRIES, &-0.0, &mut bytes);
        encoding::uint64::encode(7, &5, &mut bytes);
        Generated { entries: numbers(3) }.encode(&mut bytes).unwrap();
        let generated = Generated::decode(&*bytes).unwrap();
        let (first, second) = bytes.split_at(101);
        assert_eq!(Packed::decode(&*bytes).unwrap().entries, generated.entries);
        assert_eq!(Packed::decode(first.chain(second)).unwrap().entries, generated.entries);
        assert_eq!(generated.entries.len(), 74);
    }

    #[test]
    fn what_the_generated_code_refuses_is_refused() {
        let whole = Generated { entries: numbers(3) }.encode_to_vec();
        let mut odd = whole.clone();
        odd[1] -= 1;
        let mut varint = Vec::new();
        encoding::uint64::encode(ENTRIES, &5, &mut varint);
        let huge = [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        for bytes in [&whole[..whole.len() - 1], &whole[..1], &odd[..], &odd[..odd.len() - 1], &varint, &huge]
        {
            assert!(Generated::decode(bytes).is_err(), "{bytes:?}");
            assert!(Packed::decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
