//! Tokens that all coordinators of a database share.

use std::time::Duration;

use posse_core::AgentId;
use posse_net::coordinator::Tokens;

use crate::support::Place;

#[test]
fn a_token_made_anywhere_is_valid_everywhere_until_it_is_revoked_anywhere() {
    let Some(place) = Place::single("tokens") else { return };
    let open = || Tokens::in_database(&place.database()).unwrap();
    let (one, two) = (open(), open());
    let (text, info) = one.create(AgentId(7), vec!["test".into()]).unwrap();
    assert!(two.verify(&text).is_err(), "it has not looked yet");
    assert_eq!(two.reload().unwrap(), []);
    assert_eq!(two.verify(&text).unwrap().agent, AgentId(7));
    let renewed = two.rotate(&info.id, Duration::ZERO).unwrap();
    assert_eq!(one.reload().unwrap(), [AgentId(7)]);
    assert!(one.verify(&text).is_err() && one.verify(&renewed).is_ok());
    one.revoke(&info.id).unwrap();
    assert_eq!(two.reload().unwrap(), [AgentId(7)]);
    assert_eq!(two.verify(&renewed), Err("this token was revoked"));
    let secret = renewed.rsplit('_').next().unwrap();
    let kept = place.ask("SELECT document FROM posse_token");
    assert!(!kept.contains(secret), "{kept}");
    let audit = place.ask("SELECT string_agg(line::json->>'event', ', ' ORDER BY number) FROM posse_audit");
    assert_eq!(audit, "token created, token rotated, token revoked");
}

#[test]
fn tokens_that_are_made_at_the_same_time_are_all_there() {
    let Some(place) = Place::single("many_tokens") else { return };
    std::thread::scope(|scope| {
        for maker in 0..3 {
            let place = &place;
            scope.spawn(move || {
                let tokens = Tokens::in_database(&place.database()).unwrap();
                for number in 0..5 {
                    tokens.create(AgentId(5 * maker + number), vec!["test".into()]).unwrap();
                }
            });
        }
    });
    let tokens = Tokens::in_database(&place.database()).unwrap();
    let mut agents: Vec<u64> = tokens.list().iter().map(|token| token.agent).collect();
    agents.sort_unstable();
    assert_eq!(agents, (0..15).collect::<Vec<_>>());
}
