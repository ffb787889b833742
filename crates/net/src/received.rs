//! A frame of an agent together with the bytes that it was decoded from, which the log keeps as they came.

use bytes::{Buf, BufMut, Bytes};
use posse_core::wire::v1::UpFrame;
use prost::encoding::{DecodeContext, WireType};
use prost::{DecodeError, Message};

/// A frame as it came. What a newer agent writes into it and this version does not know is in the bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReceivedFrame {
    frame: UpFrame,
    bytes: Bytes,
}

impl ReceivedFrame {
    /// The frame and its bytes.
    #[must_use]
    pub fn into_parts(self) -> (UpFrame, Bytes) {
        (self.frame, self.bytes)
    }

    /// How long the frame is.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl Message for ReceivedFrame {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(&self.bytes);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        self.frame.merge_field(tag, wire_type, buffer, context)?;
        self.bytes = self.frame.encode_to_vec().into();
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.bytes.len()
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn decode(mut buffer: impl Buf) -> Result<Self, DecodeError> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        Ok(Self { frame: UpFrame::decode(bytes.clone())?, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_kept_with_fields_that_nobody_here_knows() {
        let mut bytes = UpFrame { epoch: 3, greeting: 7, ..UpFrame::default() }.encode_to_vec();
        // Field 100, a number: from an agent of a later version.
        bytes.extend([0xa0, 0x06, 0x05]);
        let received = ReceivedFrame::decode(bytes.as_slice()).unwrap();
        assert_eq!(received.length(), bytes.len() as u64);
        let (frame, kept) = received.into_parts();
        assert_eq!((frame.epoch, frame.greeting, kept.as_ref()), (3, 7, bytes.as_slice()));
        assert!(ReceivedFrame::decode(&[0xff_u8][..]).is_err());
    }
}
