//! Connections to the database inside of TLS.

use posse_net::log::LogError;
use posse_net::log::postgres::Database;
use posse_net::log::{StorageConfig, StorageKind};
use posse_testing::postgres::Cluster;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// An authority and what it vouches for.
fn authority() -> (String, Issuer<'static, KeyPair>) {
    let mut parameters = CertificateParams::new(Vec::<String>::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    (certificate.pem(), Issuer::new(parameters, key))
}

#[test]
fn a_server_is_believed_if_the_authority_that_was_named_vouches_for_it() {
    let (ours, issuer) = authority();
    let (theirs, _) = authority();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let Some(cluster) = Cluster::start_encrypted(&certificate.pem(), &key.serialize_pem()) else { return };
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let migrate = |host: &str, authority: Option<&str>| {
        let file = directory.path().join("authority.pem");
        std::fs::write(&file, authority.unwrap_or_default()).unwrap();
        let mode = if authority.is_none() { " sslmode=require" } else { "" };
        let storage = StorageConfig {
            kind: StorageKind::Postgres,
            connection: Some(format!("host={host} port={} user=posse dbname=postgres{mode}", cluster.port())),
            authority: authority.map(|_| file),
            ..StorageConfig::default()
        };
        let _inside = runtime.enter();
        let database = Database::new(&storage, String::new(), true)?;
        runtime.block_on(database.migrate())
    };
    let refused = |done: Result<_, LogError>| done.unwrap_err().to_string();
    let wrong = refused(migrate("localhost", Some(&theirs)));
    assert!(wrong.contains("certificate"), "{wrong}");
    let other_name = refused(migrate("127.0.0.1", Some(&ours)));
    assert!(other_name.contains("certificate"), "{other_name}");
    let without = refused(migrate("localhost", None));
    assert!(without.contains("`authority` in [storage]"), "{without}");
    assert!(refused(migrate("localhost", Some("nothing"))).contains("no certificate"));
    assert_eq!(migrate("localhost", Some(&ours)).unwrap(), (0, 1));
}
