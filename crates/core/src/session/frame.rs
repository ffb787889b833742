//! What travels over a link: at most one message, with the bookkeeping of its delivery.

use prost::Message;

use crate::cost::Cost;
use crate::error::DecodeError;
use crate::ids::{Epoch, Incarnation};
use crate::message::{Downlink, Uplink};
use crate::wire::{self, v1};

/// From an agent to the coordinator. Without a message it acknowledges, or says hello.
#[derive(Clone, Debug, PartialEq)]
pub struct UpFrame {
    /// The coordinator's history as the agent knows it.
    pub epoch: Epoch,
    /// The life of the agent that sends it.
    pub incarnation: Incarnation,
    /// The newest numbered frame that the agent received.
    pub acknowledged: u64,
    /// 1, 2, 3 … for frames with a message, 0 without.
    pub sequence: u64,
    /// The message, if the frame carries one.
    pub message: Option<Uplink>,
    /// 1, 2, 3 … when the agent has just come, or come back, and wants an answer even if it says nothing;
    /// otherwise 0.
    pub greeting: u64,
}

/// From the coordinator to an agent. Without a message it acknowledges.
#[derive(Clone, Debug, PartialEq)]
pub struct DownFrame {
    /// The epoch of the coordinator: which history it goes on with.
    pub epoch: Epoch,
    /// The agent's life, as the coordinator knows it.
    pub incarnation: Incarnation,
    /// The newest numbered frame that the coordinator accepted from this agent.
    pub acknowledged: u64,
    /// Grows with every message; gaps are messages that a newer one replaced. 0 without a message.
    pub sequence: u64,
    /// The message, if the frame carries one.
    pub message: Option<Downlink>,
    /// The greeting that this frame answers, or 0.
    pub greeting: u64,
}

impl UpFrame {
    /// Encodes the frame as it travels and as logs keep it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.to_wire().encode_to_vec()
    }

    /// Decodes a frame. Fails if the bytes are not one, or hold more than this build accepts.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::from_wire(wire::decode(bytes)?)
    }

    /// What sending it costs: the message, and the frame's own bytes around it.
    #[must_use]
    pub fn cost(&self) -> Cost {
        let Self { epoch, incarnation, acknowledged, sequence, greeting, .. } = self;
        let header = frame_len([epoch.0, incarnation.0, *acknowledged, *sequence, *greeting]);
        framed(header, self.message.as_ref().map(Uplink::cost))
    }

    /// As the generated type, for transports that encode it themselves.
    #[must_use]
    pub fn to_wire(&self) -> v1::UpFrame {
        v1::UpFrame {
            epoch: self.epoch.0,
            incarnation: self.incarnation.0,
            acknowledged: self.acknowledged,
            sequence: self.sequence,
            message: self.message.as_ref().map(wire::uplink_to_wire),
            greeting: self.greeting,
        }
    }

    /// The frame that a generated type describes.
    pub fn from_wire(frame: v1::UpFrame) -> Result<Self, DecodeError> {
        let message = frame.message.map(wire::uplink_from_wire).transpose()?;
        check_sequence(frame.sequence, message.is_some())?;
        Ok(Self {
            greeting: frame.greeting,
            epoch: Epoch(frame.epoch),
            incarnation: Incarnation(frame.incarnation),
            acknowledged: frame.acknowledged,
            sequence: frame.sequence,
            message,
        })
    }
}

impl DownFrame {
    /// Encodes the frame as it travels.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.to_wire().encode_to_vec()
    }

    /// As the generated type, for transports that encode it themselves.
    #[must_use]
    pub fn to_wire(&self) -> v1::DownFrame {
        v1::DownFrame {
            epoch: self.epoch.0,
            incarnation: self.incarnation.0,
            acknowledged: self.acknowledged,
            sequence: self.sequence,
            message: self.message.as_ref().map(wire::downlink_to_wire),
            greeting: self.greeting,
        }
    }

    /// Decodes a frame. Fails if the bytes are not one, or hold more than this build accepts.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::from_wire(wire::decode(bytes)?)
    }

    /// The frame that a generated type describes.
    pub fn from_wire(frame: v1::DownFrame) -> Result<Self, DecodeError> {
        let message = frame.message.map(wire::downlink_from_wire).transpose()?;
        check_sequence(frame.sequence, message.is_some())?;
        Ok(Self {
            greeting: frame.greeting,
            epoch: Epoch(frame.epoch),
            incarnation: Incarnation(frame.incarnation),
            acknowledged: frame.acknowledged,
            sequence: frame.sequence,
            message,
        })
    }

    /// What sending it costs: the message, and the frame's own bytes around it.
    #[must_use]
    pub fn cost(&self) -> Cost {
        let Self { epoch, incarnation, acknowledged, sequence, greeting, .. } = self;
        let header = frame_len([epoch.0, incarnation.0, *acknowledged, *sequence, *greeting]);
        framed(header, self.message.as_ref().map(Downlink::cost))
    }
}

fn check_sequence(sequence: u64, has_message: bool) -> Result<(), DecodeError> {
    if (sequence > 0) == has_message {
        Ok(())
    } else {
        Err(DecodeError::invalid("frame", "a message has a number, and nothing else has"))
    }
}

fn frame_len(header: [u64; 5]) -> u64 {
    header
        .into_iter()
        .map(|v| if v == 0 { 0 } else { 1 + prost::encoding::encoded_len_varint(v) as u64 })
        .sum()
}

fn framed(header: u64, message: Option<Cost>) -> Cost {
    match message {
        None => Cost::control(header as usize),
        Some(cost) => {
            let around = 1 + prost::length_delimiter_len(cost.bytes as usize) as u64;
            Cost { bytes: header + around + cost.bytes, ..cost }
        }
    }
}
