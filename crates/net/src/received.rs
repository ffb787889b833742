//! Frames together with the bytes that they were decoded from. The coordinator's log and the agent's journal keep the bytes
//! as they came.

use bytes::{Buf, BufMut, Bytes};
use posse_core::wire::v1::DownFrame;
use prost::encoding::{DecodeContext, WireType, skip_field};
use prost::{DecodeError, Message};

/// A frame as it came. What a newer peer writes into it and this version does not know is in the bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Received<F> {
    frame: F,
    bytes: Bytes,
}

impl<F> Received<F> {
    /// The frame and its bytes.
    #[must_use]
    pub fn into_parts(self) -> (F, Bytes) {
        (self.frame, self.bytes)
    }

    /// How many bytes the frame came in.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl<F: Message + Default> Message for Received<F> {
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
        Ok(Self { frame: F::decode(bytes.clone())?, bytes })
    }
}

/// `ExchangeReply` as an agent receives it: every frame with the bytes that it came in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReceivedReply {
    /// The frames that waited for the agent, in their order.
    pub frames: Vec<Received<DownFrame>>,
}

/// The field `frames` of `ExchangeReply` in service.proto.
const FRAMES: u32 = 1;

impl Message for ReceivedReply {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        for frame in &self.frames {
            prost::encoding::bytes::encode(FRAMES, &frame.bytes, buffer);
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        if tag != FRAMES {
            return skip_field(wire_type, tag, buffer, context);
        }
        // On the wire, a message within a message is its bytes and their number.
        let mut bytes = Bytes::new();
        prost::encoding::bytes::merge(wire_type, &mut bytes, buffer, context)?;
        self.frames.push(Received::decode(bytes)?);
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.frames.iter().map(|frame| prost::encoding::bytes::encoded_len(FRAMES, &frame.bytes)).sum()
    }

    fn clear(&mut self) {
        self.frames.clear();
    }
}

#[cfg(test)]
mod tests {
    use posse_core::wire::v1::UpFrame;

    use super::*;
    use crate::v1::ExchangeReply;

    /// Field 100, a number: from a peer of a later version.
    const UNKNOWN: [u8; 3] = [0xa0, 0x06, 0x05];

    #[test]
    fn what_came_is_kept_with_fields_that_this_version_does_not_know() {
        let mut bytes = UpFrame { epoch: 3, greeting: 7, ..UpFrame::default() }.encode_to_vec();
        bytes.extend(UNKNOWN);
        let received = Received::<UpFrame>::decode(bytes.as_slice()).unwrap();
        assert_eq!(received.length(), bytes.len() as u64);
        let (frame, kept) = received.into_parts();
        assert_eq!((frame.epoch, frame.greeting, kept.as_ref()), (3, 7, bytes.as_slice()));
        assert!(Received::<UpFrame>::decode(&[0xff_u8][..]).is_err());
    }

    #[test]
    fn a_reply_is_read_as_frames_that_each_have_their_bytes() {
        let frames: Vec<DownFrame> =
            (1..=3).map(|sequence| DownFrame { sequence, ..DownFrame::default() }).collect();
        let mut bytes = ExchangeReply { frames: frames.clone() }.encode_to_vec();
        bytes.extend(UNKNOWN);
        // A frame of a later version: that of sequence 1, with a field more.
        let longer = [&frames[0].encode_to_vec()[..], &UNKNOWN].concat();
        prost::encoding::bytes::encode(FRAMES, &longer, &mut bytes);
        let reply = ReceivedReply::decode(bytes.as_slice()).unwrap();
        assert_eq!(ReceivedReply::decode(reply.encode_to_vec().as_slice()).unwrap(), reply);
        assert_eq!(reply.encoded_len(), reply.encode_to_vec().len());
        let (read, kept): (Vec<_>, Vec<_>) = reply.frames.into_iter().map(Received::into_parts).unzip();
        assert_eq!(read, [&frames[..], &frames[..1]].concat());
        assert_eq!(kept[1], frames[1].encode_to_vec());
        assert_eq!(kept[3], longer);
        // A frame that is cut off, and one that is no frame.
        assert!(ReceivedReply::decode(&[0x0a_u8, 5, 1][..]).is_err());
        assert!(ReceivedReply::decode(&[0x0a_u8, 1, 0xff][..]).is_err());
    }
}
