//! The wire format: everything comes back, costs what it says, and no bytes hurt.

use std::sync::Arc;

use crate::support::{down_frames, downlinks, log_entries, random_evidence, up_frames, uplinks};
use posse_core::session::{DownFrame, LogEntry, UpFrame};
use posse_core::wire::{decode_downlink, decode_uplink, encode_downlink, encode_uplink};
use posse_core::{
    Answer, DecodeError, Downlink, Evidence, EvidenceUpload, Fit, Gradient, Model, News, Parcel, Pull,
    RoundId, Snapshot, Uplink, Version, packed,
};
use proptest::prelude::*;

fn answer(snapshot: Option<Snapshot>) -> Downlink {
    let news = News {
        version: Version(3),
        count: 70,
        information: 1.0,
        agents: 3,
        rate: 0.1,
        doubt: 2.0,
        forgotten: 0,
    };
    Downlink::Answer(Answer {
        pulled: true,
        number: 2,
        version: Some(Version(3)),
        news,
        snapshot,
        rounded: None,
    })
}

proptest! {
    #[test]
    fn an_uplink_comes_back_and_costs_its_length(message in uplinks()) {
        let bytes = encode_uplink(&message);
        prop_assert_eq!(message.cost().bytes, bytes.len() as u64);
        prop_assert_eq!(decode_uplink(&bytes), Ok(message));
    }

    #[test]
    fn a_downlink_comes_back_and_costs_its_length(message in downlinks()) {
        let bytes = encode_downlink(&message);
        prop_assert_eq!(message.cost().bytes, bytes.len() as u64);
        prop_assert_eq!(decode_downlink(&bytes), Ok(message));
    }

    #[test]
    fn an_up_frame_comes_back_and_costs_its_length(frame in up_frames()) {
        let bytes = frame.encode();
        prop_assert_eq!(frame.cost().bytes, bytes.len() as u64);
        prop_assert_eq!(UpFrame::decode(&bytes), Ok(frame));
    }

    #[test]
    fn a_down_frame_comes_back_and_costs_its_length(frame in down_frames()) {
        let bytes = frame.encode();
        prop_assert_eq!(frame.cost().bytes, bytes.len() as u64);
        prop_assert_eq!(DownFrame::decode(&bytes), Ok(frame));
    }

    #[test]
    fn a_log_entry_comes_back(entry in log_entries()) {
        prop_assert_eq!(LogEntry::decode(&entry.encode()), Ok(entry));
    }

    #[test]
    fn a_frame_adds_bytes_to_its_message_and_nothing_else(up in up_frames(), down in down_frames()) {
        for (frame, message) in [
            (up.cost(), up.message.as_ref().map(Uplink::cost)),
            (down.cost(), down.message.as_ref().map(Downlink::cost)),
        ] {
            match message {
                Some(message) => {
                    prop_assert!(frame.bytes > message.bytes);
                    prop_assert_eq!((frame.messages, frame.control), (message.messages, message.control));
                    prop_assert_eq!(frame.scalars, message.scalars);
                    prop_assert_eq!(frame.paper_scalars, message.paper_scalars);
                }
                None => prop_assert_eq!((frame.messages, frame.control, frame.scalars), (0, 1, 0)),
            }
        }
    }

    #[test]
    fn scalars_are_the_documented_counts(d in 1usize..30, seed: u64, number in 1u64..9) {
        // Enough observations that the matrix is the smaller form.
        let evidence = random_evidence(d, d as u64 + 1, seed);
        let parcel = Parcel::Dense(evidence.clone());
        let (round, version) = (RoundId(1), Version(2));
        let upload = EvidenceUpload { number, based_on: version, information: 1.0, evidence: parcel.clone() };
        let evidence = Arc::new(evidence);
        let snapshot = Snapshot {
            authoritative: false,
            version,
            contains: 0,
            information: 1.0,
            evidence: Arc::clone(&evidence),
        };
        let (long, short) = ((packed(d) + d + 2) as u64, (packed(d) + d + 1) as u64);
        for (cost, scalars) in [
            (Uplink::Evidence(upload.clone()).cost(), long),
            (Downlink::Snapshot(snapshot.clone()).cost(), long),
            (Uplink::Pull(Pull { based_on: version, doubt: 1.0, upload: Some(upload) }).cost(), long + 1),
            (answer(Some(snapshot)).cost(), long + 4),
            (Uplink::RoundEvidence { round, evidence: parcel }.cost(), short),
            (Downlink::Commit { round, included: true, version, evidence }.cost(), short),
        ] {
            prop_assert_eq!((cost.messages, cost.control), (1, 0));
            prop_assert_eq!(cost.scalars, scalars);
            prop_assert_eq!(cost.paper_scalars, (d * d + d) as u64);
        }
        for cost in [
            Uplink::RoundRequest { observations: 0 }.cost(),
            Uplink::Pull(Pull { based_on: version, doubt: 1.0, upload: None }).cost(),
            answer(None).cost(),
            Downlink::Collect { round, whole: true }.cost(),
            Downlink::Abort { round }.cost(),
            Downlink::Receipt { number, version: Some(version) }.cost(),
        ] {
            prop_assert_eq!((cost.messages, cost.control, cost.scalars, cost.paper_scalars), (0, 1, 0, 0));
        }
    }

    #[test]
    fn scalars_of_gradient_rounds_are_the_documented_counts(d in 1usize..30, seed: u64) {
        let p = packed(d);
        let evidence = random_evidence(d, d as u64 + 1, seed);
        let silent = Evidence::from_parts(evidence.gram().to_vec(), vec![0.0; d], evidence.count()).unwrap();
        let (round, vector) = (RoundId(1), vec![1.0; d]);
        let model = |fit| Downlink::Model(Model {
            authoritative: false,
            version: Version(1),
            contains: 1,
            evidence: Arc::new(evidence.clone()),
            estimate: Arc::new(vector.clone()),
            fit,
        });
        let minimised = Fit::Minimised { gap: 1.0, information: 1.0, unit_information: 1.0 };
        let curvature = Arc::new(vec![1.0; p]);
        let online = Fit::Online { curvature, potential: 1.0, squares: 1.0 };
        let gradient = |curvature| Uplink::Gradient(Gradient { round, step: 1, gradient: vector.clone(), curvature });
        let point = Arc::new(vector.clone());
        // As they travel, and as the papers count them.
        for (cost, scalars, paper) in [
            (Uplink::RoundEvidence { round, evidence: Parcel::Dense(silent) }.cost(), p + 1, d * d + 1),
            (Downlink::GradientRequest { round, step: 1, point, curvature: false }.cost(), d, d),
            (gradient(None).cost(), d, d),
            (gradient(Some(vec![1.0; p])).cost(), d + p, d + p),
            (model(minimised).cost(), p + d + 4, d * d + d),
            (model(online).cost(), 2 * p + 2 * d + 3, 2 * d * d + d + 1),
        ] {
            prop_assert_eq!((cost.messages, cost.control, cost.scalars), (1, 0, scalars as u64));
            prop_assert_eq!(cost.paper_scalars, paper as u64);
        }
    }

    #[test]
    fn arbitrary_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        decode_everything(&bytes);
    }

    #[test]
    fn flipped_bits_are_decoded_or_refused(
        mut bytes in encodings(), flips in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..6),
    ) {
        for (place, bit) in flips {
            if !bytes.is_empty() {
                let place = place.index(bytes.len());
                bytes[place] ^= 1 << bit;
            }
        }
        decode_everything(&bytes);
    }

    #[test]
    fn truncated_encodings_are_decoded_or_refused(bytes in encodings(), end: prop::sample::Index) {
        decode_everything(&bytes[..end.index(bytes.len() + 1)]);
    }

    #[test]
    fn spliced_lengths_are_decoded_or_refused(
        mut bytes in encodings(),
        place: prop::sample::Index,
        length in crate::support::integers(),
        tail in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut varint = Vec::new();
        prost_varint(length, &mut varint);
        let place = place.index(bytes.len() + 1);
        bytes.splice(place..(place + 1).min(bytes.len()), varint);
        bytes.extend(tail);
        decode_everything(&bytes);
    }

    #[test]
    fn what_survives_a_mutation_is_still_possible(mut bytes in encodings(), place: prop::sample::Index, byte: u8) {
        if !bytes.is_empty() {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok(Downlink::Snapshot(Snapshot { evidence, information, .. })) = decode_downlink(&bytes) {
            prop_assert_eq!(evidence.check(), Ok(()));
            prop_assert!(information.is_finite() && information >= 0.0);
        }
        if let Ok(Uplink::Evidence(upload)) = decode_uplink(&bytes) {
            let evidence = upload.evidence.evidence();
            prop_assert!(evidence.is_finite());
            prop_assert_eq!(evidence.dimension(), upload.evidence.dimension());
        }
    }
}

/// Valid encodings of every kind.
fn encodings() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        uplinks().prop_map(|message| encode_uplink(&message)),
        downlinks().prop_map(|message| encode_downlink(&message)),
        up_frames().prop_map(|frame| frame.encode()),
        down_frames().prop_map(|frame| frame.encode()),
        log_entries().prop_map(|entry| entry.encode()),
    ]
}

/// Brings the bytes to every decoder. What one of them takes must encode to something it takes again, and that to the
/// same bytes. Values are not compared: a number that is not one equals nothing.
fn decode_everything(bytes: &[u8]) {
    if let Ok(message) = decode_uplink(bytes) {
        let again = encode_uplink(&message);
        assert_eq!(decode_uplink(&again).map(|message| encode_uplink(&message)), Ok(again));
    }
    if let Ok(message) = decode_downlink(bytes) {
        let again = encode_downlink(&message);
        assert_eq!(decode_downlink(&again).map(|message| encode_downlink(&message)), Ok(again));
    }
    if let Ok(frame) = UpFrame::decode(bytes) {
        let again = frame.encode();
        assert_eq!(UpFrame::decode(&again).map(|frame| frame.encode()), Ok(again));
    }
    if let Ok(frame) = DownFrame::decode(bytes) {
        let again = frame.encode();
        assert_eq!(DownFrame::decode(&again).map(|frame| frame.encode()), Ok(again));
    }
    if let Ok(entry) = LogEntry::decode(bytes) {
        let again = entry.encode();
        assert_eq!(LogEntry::decode(&again).map(|entry| entry.encode()), Ok(again));
    }
}

fn prost_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[test]
fn the_papers_dimension_costs_what_the_papers_count() {
    let evidence = Parcel::Dense(random_evidence(25, 26, 1));
    let upload = EvidenceUpload { number: 1, based_on: Version(0), information: 1.0, evidence };
    let cost = Uplink::Evidence(upload).cost();
    assert_eq!((cost.scalars, cost.paper_scalars), (352, 650));
}

#[test]
fn impossible_messages_are_refused() {
    let invalid = |result: Result<Uplink, DecodeError>| {
        assert!(matches!(result, Err(DecodeError::Invalid { .. })), "{result:?}");
    };
    let upload = |information: f64, evidence: Parcel| {
        encode_uplink(&Uplink::Evidence(EvidenceUpload {
            number: 1,
            based_on: Version(0),
            information,
            evidence,
        }))
    };
    let good = Parcel::Dense(Evidence::none(2));
    for information in [f64::NAN, f64::INFINITY, -1.0] {
        invalid(decode_uplink(&upload(information, good.clone())));
    }
    invalid(decode_uplink(&[]));
    assert!(matches!(decode_downlink(&[]), Err(DecodeError::Invalid { .. })));
    assert!(matches!(LogEntry::decode(&[]), Err(DecodeError::Invalid { .. })));
    // A number without a message, and a message without a number.
    assert!(matches!(UpFrame::decode(&[0x20, 1]), Err(DecodeError::Invalid { .. })));
    assert!(matches!(UpFrame::decode(&[0x2a, 2, 0x12, 0]), Err(DecodeError::Invalid { .. })));
    assert!(matches!(UpFrame::decode(&[0xff]), Err(DecodeError::Malformed(_))));
}
