//! `[[check]]` tables.

use crate::command::{Ran, directory_with, posse};

const BASE: &str = r#"
horizon = 400
agents = 8
repetitions = 5
[environment]
dimension = 4
arms = 5
[[algorithm]]
name = "async-lin-ucb"
threshold = [1.2, 2, 8, inf]
[[algorithm]]
name = "lin-ucb"
"#;

fn run(checks: &str) -> Ran {
    let directory = directory_with(&format!("{BASE}{checks}"));
    posse(directory.path(), &["run", "x.toml", "-q"])
}

#[test]
fn checks_that_hold_pass_with_their_numbers() {
    let ran = run(r#"
[[check]]
says = "waiting longer means sending less"
kind = "monotone"
where = { algorithm = "async-lin-ucb" }
along = "threshold"
y = "messages"
direction = "decreasing"
[[check]]
kind = "spearman"
where = { algorithm = "async-lin-ucb" }
along = "threshold"
x = "threshold"
y = "messages"
at_most = -0.9
[[check]]
kind = "bound-o5"
where = { algorithm = "async-lin-ucb" }
[[check]]
kind = "order"
metric = "regret"
below = { threshold = 1.2 }
above = { algorithm = "lin-ucb" }
[[check]]
kind = "order"
metric = "messages"
below = { algorithm = "async-lin-ucb" }
above = { algorithm = "async-lin-ucb" }
at_equal = "regret"
factor = 1.01
[[check]]
kind = "range"
where = { threshold = inf }
metric = "messages"
high = 0
"#);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(ran.stdout.matches("PASS").count(), 6, "{}", ran.stdout);
    assert!(ran.stdout.contains("waiting longer means sending less\n"));
    assert!(ran.stdout.contains("= -1.000 over 4 groups"), "{}", ran.stdout);
    assert!(ran.stdout.contains("4 groups, the closest is async-lin-ucb/threshold="), "{}", ran.stdout);
}

#[test]
fn groups_without_a_value_are_those_where_it_is_not_set() {
    let range = |value: &str| {
        format!(
            "[[algorithm]]\nname = \"lin-ucb\"\nfixed_width = [0.3, 0.4]\n\
             [[check]]\nkind = \"range\"\nwhere = {{ algorithm = \"lin-ucb\", fixed_width = {value} }}\n\
             metric = \"messages\"\nhigh = 0\nlevel = \"expect\"\n"
        )
    };
    let (none, low) = (" lin-ucb: messages 0\n", " lin-ucb/fixed_width=0.3: messages 0\n");
    for (value, has_none, has_low) in [
        ("\"not set\"", true, false),
        ("0.3", false, true),
        ("[\"not set\", 0.3]", true, true),
        ("[0.3, 0.4]", false, true),
    ] {
        let ran = run(&range(value));
        let told = (ran.stdout.contains(none), ran.stdout.contains(low));
        assert_eq!(told, (has_none, has_low), "{value}: {}", ran.stdout);
    }
}

/// With a hundredth to spare every group matches itself; with nothing to spare there are differences that seeds cannot tell.
#[test]
fn a_front_matches_every_point_at_no_more_cost() {
    let front = |below: &str, above: &str, factor: f64| {
        format!(
            "[[check]]\nkind = \"front\"\nmetric = \"regret\"\ncost = \"messages\"\nlevel = \"expect\"\n\
             below = {{ {below} }}\nabove = {{ {above} }}\nfactor = {factor}\n"
        )
    };
    let all = "algorithm = \"async-lin-ucb\"";
    let ran = run(&front(all, all, 1.01));
    assert!(
        ran.stdout.contains("  PASS ") && ran.stdout.contains("4 points, the nearest: regret"),
        "{}",
        ran.stdout
    );
    let ran = run(&front(all, all, 1.0));
    assert!(
        ran.stdout.contains("  INCONCLUSIVE ") && ran.stdout.contains("points cannot be told"),
        "{}",
        ran.stdout
    );
    // Agents that send nothing learn alone: they cost nothing, and every setting that shares has less regret.
    let ran = run(&front("threshold = inf", "threshold = [1.2, 2]", 1.0));
    assert!(
        ran.stdout.contains("  DEVIATES ") && ran.stdout.contains("2 of 2 points are not matched"),
        "{}",
        ran.stdout
    );
    // Who shares has less regret than who learns alone, and sends messages for it.
    let ran = run(&front("threshold = [1.2, 2]", "threshold = inf", 1.0));
    assert!(
        ran.stdout.contains("nothing costs as little as async-lin-ucb/threshold=inf (0 messages)"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("  DEVIATES "), "{}", ran.stdout);
}

#[test]
fn what_must_hold_fails_and_what_is_expected_deviates() {
    let wrong = "[[check]]\nkind = \"range\"\nmetric = \"regret\"\nhigh = 0\n";
    let ran = run(wrong);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stdout.contains("  FAIL          range, all groups\n") && ran.stdout.contains('←'),
        "{}",
        ran.stdout
    );
    let ran = run(&format!("{wrong}level = \"expect\"\n"));
    assert_eq!(ran.code, 0);
    assert!(ran.stdout.contains("  DEVIATES      range, all groups\n"), "{}", ran.stdout);
}

#[test]
fn verdicts_are_kept_in_the_manifest_and_checks_may_change_without_running_again() {
    let directory = directory_with(BASE);
    let run = || posse(directory.path(), &["run", "x.toml", "--out", "r"]);
    assert_eq!(run().code, 0);
    let check = "[[check]]\nkind = \"range\"\nmetric = \"regret\"\nhigh = 0\n";
    std::fs::write(directory.path().join("x.toml"), format!("{BASE}{check}")).unwrap();
    let again = run();
    assert_eq!(
        (again.code, again.stderr.as_str()),
        (1, "25 of 25 cells are there already\nplots and tables: posse report r\n")
    );
    let manifest = std::fs::read_to_string(directory.path().join("r/manifest.json")).unwrap();
    assert!(manifest.contains("\"result\": \"FAIL\""));
}

#[test]
fn what_seeds_cannot_tell_is_inconclusive() {
    // Nobody sends anything: neither claim says anything about the world.
    let nothing = "[[check]]\nkind = \"order\"\nmetric = \"messages\"\nbelow = { algorithm = \"lin-ucb\" }\n\
                   above = { threshold = inf }\n";
    let ran = run(nothing);
    assert_eq!(ran.code, 0);
    assert!(ran.stdout.contains("  INCONCLUSIVE  order"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("messages 0 of lin-ucb against 0 of async-lin-ucb/threshold=inf  ?"),
        "{}",
        ran.stdout
    );
    // One seed, and a quick run, whatever their numbers.
    let claim = "[[check]]\nkind = \"order\"\nmetric = \"regret\"\nbelow = { threshold = 1.2 }\nabove = { algorithm = \"lin-ucb\" }\n";
    let one = directory_with(&format!("{}{claim}", BASE.replace("repetitions = 5", "repetitions = 1")));
    let ran = posse(one.path(), &["run", "x.toml", "-q"]);
    assert!(
        ran.stdout.contains("INCONCLUSIVE") && ran.stdout.contains("one seed cannot tell"),
        "{}",
        ran.stdout
    );
    let full = directory_with(&format!("{BASE}{claim}"));
    let ran = posse(full.path(), &["run", "x.toml", "-q", "--quick"]);
    assert!(ran.stdout.contains("INCONCLUSIVE") && ran.stdout.contains("without --quick"), "{}", ran.stdout);
}

/// With γ = 1 everybody hears of everything: N messages an interaction, so that they grow as T and as N to the power one.
#[test]
fn a_slope_is_an_exponent_with_its_interval() {
    let text = |at_most: f64| {
        format!(
            r#"
horizon = [200, 400, 800]
agents = [4, 8]
repetitions = 3
[environment]
dimension = 3
arms = 5
[[algorithm]]
name = "async-lin-ucb"
threshold = 1
join = "eager"
[[check]]
says = "messages grow as T"
kind = "slope"
along = "horizon"
y = "messages"
at_least = 0.99
at_most = {at_most}
[[check]]
says = "and as N"
kind = "slope"
where = {{ horizon = [400, 800] }}
along = "agents"
y = "messages"
at_most = 1.2
"#
        )
    };
    let run = |at_most| {
        let directory = directory_with(&text(at_most));
        posse(directory.path(), &["run", "x.toml", "-q"])
    };
    let ran = run(1.01);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("messages grows as horizon to the power 1.00 (95 %: "), "{}", ran.stdout);
    assert_eq!(ran.stdout.matches("over 2 points, 3 seeds").count(), 2, "{}", ran.stdout);
    assert_eq!(run(0.9).code, 1, "a bound that is too low fails");
}

#[test]
fn a_reason_is_shown_where_a_claim_does_not_hold_and_nowhere_else() {
    let claim = |high: u32, why: &str| {
        format!(
            "[[check]]\nlevel = \"expect\"\nkind = \"range\"\nwhere = {{ threshold = 1.2 }}\nmetric = \"messages\"\nhigh = {high}\nwhy = \"{why}\"\n"
        )
    };
    let ran = run(&(claim(0, "agents talk") + &claim(1_000_000, "never said")));
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("DEVIATES") && ran.stdout.contains("why: agents talk\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("PASS") && !ran.stdout.contains("never said"), "{}", ran.stdout);
    let refused = run("[[check]]\nkind = \"range\"\nmetric = \"messages\"\nhigh = 0\nwhy = 3\n");
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("`why`") && refused.stderr.contains("a text"), "{}", refused.stderr);
}
