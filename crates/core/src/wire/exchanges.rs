//! Questions before a choice and their answers.

use std::sync::Arc;

use super::{
    information, parcel_from_wire, parcel_to_wire, required, rounded, snapshot_around, snapshot_to_wire, v1,
};
use crate::error::DecodeError;
use crate::ids::Version;
use crate::message::{Answer, EvidenceUpload, News, Pull, Snapshot};
use crate::parcel::Parcel;

pub(super) fn upload_to_wire(upload: &EvidenceUpload) -> v1::EvidenceUpload {
    v1::EvidenceUpload {
        number: upload.number,
        based_on: upload.based_on.0,
        information: upload.information,
        evidence: Some(parcel_to_wire(&upload.evidence)),
    }
}

pub(super) fn upload_from_wire(upload: v1::EvidenceUpload) -> Result<EvidenceUpload, DecodeError> {
    Ok(EvidenceUpload {
        number: upload.number,
        based_on: Version(upload.based_on),
        information: information(upload.information)?,
        evidence: parcel_from_wire(required(upload.evidence)?)?,
    })
}

pub(super) fn pull_to_wire(pull: &Pull) -> v1::Pull {
    v1::Pull {
        based_on: pull.based_on.0,
        doubt: pull.doubt,
        upload: pull.upload.as_ref().map(upload_to_wire),
    }
}

pub(super) fn pull_from_wire(pull: v1::Pull) -> Result<Pull, DecodeError> {
    Ok(Pull {
        based_on: Version(pull.based_on),
        doubt: not_negative("pull", pull.doubt)?,
        upload: pull.upload.map(upload_from_wire).transpose()?,
    })
}

pub(crate) fn news_to_wire(news: &News) -> v1::News {
    v1::News {
        version: news.version.0,
        count: news.count,
        information: news.information,
        agents: news.agents,
        rate: news.rate,
        doubt: news.doubt,
        forgotten: news.forgotten,
    }
}

pub(crate) fn news_from_wire(news: v1::News) -> Result<News, DecodeError> {
    Ok(News {
        version: Version(news.version),
        count: news.count,
        information: information(news.information)?,
        agents: news.agents,
        rate: not_negative("news", news.rate)?,
        doubt: not_negative("news", news.doubt)?,
        forgotten: news.forgotten,
    })
}

pub(super) fn answer_to_wire(answer: &Answer) -> v1::Answer {
    let snapshot = answer.snapshot.as_ref().map(|snapshot| match &answer.rounded {
        None => snapshot_to_wire(snapshot),
        Some(evidence) => snapshot_around(snapshot, rounded::rounded_to_wire(evidence)),
    });
    v1::Answer {
        pulled: answer.pulled,
        number: answer.number,
        version: answer.version.map(|version| version.0),
        news: Some(news_to_wire(&answer.news)),
        snapshot,
    }
}

pub(super) fn answer_from_wire(answer: v1::Answer) -> Result<Answer, DecodeError> {
    let (snapshot, rounded) = match answer.snapshot {
        None => (None, None),
        Some(snapshot) => {
            let (evidence, rounded) = match parcel_from_wire(required(snapshot.evidence)?)? {
                Parcel::Dense(evidence) => (Arc::new(evidence), None),
                Parcel::Rounded(rounded) => (Arc::clone(rounded.evidence()), Some(Arc::new(rounded))),
                Parcel::LowRank(_) => {
                    return Err(DecodeError::invalid(
                        "evidence",
                        "a packed or rounded matrix is needed here",
                    ));
                }
            };
            let snapshot = Snapshot {
                authoritative: snapshot.authoritative,
                version: Version(snapshot.version),
                contains: snapshot.contains,
                information: information(snapshot.information)?,
                evidence,
            };
            (Some(snapshot), rounded)
        }
    };
    Ok(Answer {
        pulled: answer.pulled,
        number: answer.number,
        version: answer.version.map(Version),
        news: news_from_wire(required(answer.news)?)?,
        snapshot,
        rounded,
    })
}

fn not_negative(part: &'static str, value: f64) -> Result<f64, DecodeError> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(DecodeError::invalid(part, "a number must be finite and not negative"))
    }
}
