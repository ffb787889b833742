//! A certificate authority of the federation's own, and what it vouches for.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// How many years certificates are valid: longer than a federation is left alone, and not for ever.
const YEARS: i32 = 10;

pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    key: String,
}

impl Authority {
    /// A new authority with a key of its own, called after the federation.
    pub(super) fn new(federation: &str) -> anyhow::Result<Self> {
        let mut params = parameters(Vec::new(), &format!("posse federation {federation}"))?;
        // It vouches for coordinators and agents, and for no further authority.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().context("cannot make a key")?;
        let text = key.serialize_pem();
        let issuer = CertifiedIssuer::self_signed(params, key).context("cannot make a certificate")?;
        Ok(Self { issuer, key: text })
    }

    pub(super) fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// The private key, in PEM form.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// A certificate for these names, and its key.
    pub(super) fn vouch(&self, names: Vec<String>) -> anyhow::Result<(String, String)> {
        let called = names.first().cloned().unwrap_or_default();
        let mut params = parameters(names, &called)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().context("cannot make a key")?;
        let certificate = params.signed_by(&key, &self.issuer).context("cannot make a certificate")?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

fn parameters(names: Vec<String>, called: &str) -> anyhow::Result<CertificateParams> {
    let named = names.join(", ");
    let mut params = CertificateParams::new(names)
        .with_context(|| format!("\"{named}\" is no name or address for a certificate"))?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, called);
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // The first day of this year and of the tenth after it; the length of a year on average is near enough.
    let year = 1970 + (seconds / 31_556_952) as i32;
    params.not_before = date_time_ymd(year - 1, 1, 1);
    params.not_after = date_time_ymd(year + YEARS, 1, 1);
    Ok(params)
}
