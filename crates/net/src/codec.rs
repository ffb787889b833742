//! Protobuf over gRPC, with small buffers and malformed messages blamed on their sender.
//!
//! tonic's own codec takes 16 kB a stream before anything is said; most agents are silent most of the time,
//! and what they say then is an acknowledgement of a few bytes.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Bytes of a buffer at first, and beyond which it is passed on.
const BUFFERS: (usize, usize) = (64, 32 << 10);

/// The codec of the service.
#[derive(Clone, Debug)]
pub(crate) struct FrameCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for FrameCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for FrameCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = FrameEncoder<T>;
    type Decoder = FrameDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        FrameEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        FrameDecoder(PhantomData)
    }
}

/// Encodes one message into a buffer that is as long as it needs: a small one that grows is copied several times.
#[derive(Clone, Debug)]
pub(crate) struct FrameEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for FrameEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(message.encoded_len());
        message.encode_raw(buffer);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFERS.0, BUFFERS.1)
    }
}

/// Decodes one message. Bytes that are no such message are answered with `InvalidArgument`.
#[derive(Clone, Debug)]
pub(crate) struct FrameDecoder<U>(PhantomData<U>);

impl<U: Message + Default> Decoder for FrameDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let message = U::decode(source);
        message
            .map(Some)
            .map_err(|error| Status::invalid_argument(format!("not a posse.v1 message: {error}")))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFERS.0, BUFFERS.1)
    }
}
