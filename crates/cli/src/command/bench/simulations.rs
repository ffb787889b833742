//! The tables of whole simulations beside the programs of papers' authors.

use posse_bench::{Origin, Simulated, Versions};

use super::tables::line;

/// A row for each simulation, and below it one for each published program that was run, with what it did.
pub(super) fn simulations(out: &mut String, rows: &[Simulated], versions: Option<&Versions>) {
    line(
        out,
        "published: the authors' Python program; here: run in this run; elsewhere: its time on another machine",
    );
    line(
        out,
        "                                              posse         published      ratio  interactions/s   regret  messages    scalars",
    );
    for row in rows {
        let published =
            row.published_micros.zip(row.published_from).map_or("-".to_owned(), |(micros, from)| {
                let from = match from {
                    Origin::ThisRun => "here",
                    Origin::Elsewhere => "elsewhere",
                };
                format!("{micros:.0} us {from:<9}")
            });
        let ratio = row.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.0}x"));
        let (name, micros, rate) = (&row.name, row.micros, row.interactions_per_second);
        let (regret, messages, scalars) = (row.regret, row.messages, row.scalars);
        let posse = format!("  {name:<40} {micros:>7.2} us");
        line(
            out,
            &format!(
                "{posse} {published:>19} {ratio:>8} {rate:>15.0} {regret:>8.0} {messages:>9} {scalars:>10}"
            ),
        );
    }
    if let Some(versions) = versions {
        programs(out, rows, versions);
    }
}

fn programs(out: &mut String, rows: &[Simulated], versions: &Versions) {
    let mut runs =
        rows.iter().filter_map(|row| Some((row, row.published_run.as_ref()?, row.ratio?))).peekable();
    if runs.peek().is_none() {
        return;
    }
    let Versions { python, numpy } = versions;
    line(
        out,
        &format!(
            "  Their programs in this run, Python {python}, numpy {numpy}; algorithm: what is left without their world and separate records"
        ),
    );
    line(
        out,
        "                                         interactions       program           algorithm   regret: theirs      ours   sent: theirs       ours",
    );
    for (row, run, ratio) in runs {
        // What they count is what they say they send: messages in one repository, scalars in the other.
        let (theirs, ours) =
            run.messages.map_or((run.scalars.unwrap_or_default(), row.scalars), |own| (own, row.messages));
        let whole = format!("{:.0} us {ratio:.0}x", run.micros);
        let algorithm = format!("{:.0} us {:.0}x", run.algorithm_micros, run.algorithm_ratio);
        let size = format!("  {:<40} {:>10} {whole:>17} {algorithm:>17}", row.name, run.interactions);
        line(out, &format!("{size} {:>14.0} {:>9.0} {theirs:>14} {ours:>10}", run.regret, row.regret));
    }
}

#[cfg(test)]
mod tests {
    use posse_bench::{Measurements, PublishedRun};

    use super::super::{Round, tables::tables};
    use super::*;

    fn row(name: &str, published: Option<(f64, Origin)>) -> Simulated {
        let run = PublishedRun {
            interactions: 3000,
            micros: 800.0,
            algorithm_micros: 600.0,
            algorithm_ratio: 300.0,
            regret: 81.0,
            messages: Some(17),
            scalars: None,
        };
        let micros = published.map(|(micros, _)| micros);
        let from = published.map(|(_, from)| from);
        Simulated {
            name: name.to_owned(),
            interactions: 3000,
            interactions_per_second: 5e5,
            micros: 2.0,
            published_micros: micros,
            published_from: from,
            ratio: micros.map(|micros| micros / 2.0),
            regret: 70.0,
            messages: 19,
            scalars: 2300,
            published_run: (from == Some(Origin::ThisRun)).then_some(run),
        }
    }

    fn lines(rows: Vec<Simulated>, versions: Option<Versions>) -> Vec<String> {
        let measured = Measurements { simulations: rows, published: versions, ..Default::default() };
        let text = tables(&[Round { measured, network: None }]);
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    fn versions() -> Versions {
        Versions { python: "3.13.1".to_owned(), numpy: "2.4.6".to_owned() }
    }

    #[test]
    fn a_ratio_says_whether_its_program_ran_here_or_elsewhere() {
        let rows = vec![
            row("ran", Some((800.0, Origin::ThisRun))),
            row("did-not", Some((700.0, Origin::Elsewhere))),
            row("ours", None),
        ];
        let lines = lines(rows, Some(versions()));
        let of = |name: &str| lines.iter().find(|line| line.starts_with(name)).unwrap();
        assert_eq!(of("ran "), "ran 2.00 us 800 us here 400x 500000 70 19 2300");
        assert_eq!(of("did-not "), "did-not 2.00 us 700 us elsewhere 350x 500000 70 19 2300");
        assert_eq!(of("ours "), "ours 2.00 us - - 500000 70 19 2300");
    }

    #[test]
    fn what_a_program_did_is_beside_what_ours_did() {
        let ran = lines(vec![row("ran", Some((800.0, Origin::ThisRun)))], Some(versions()));
        assert!(ran.iter().any(|line| line.contains("Python 3.13.1, numpy 2.4.6")), "{ran:?}");
        assert!(ran.contains(&"ran 3000 800 us 400x 600 us 300x 81 70 17 19".to_owned()), "{ran:?}");
        let not = lines(vec![row("did-not", Some((700.0, Origin::Elsewhere)))], Some(versions()));
        assert!(!not.iter().any(|line| line.contains("Python 3.13.1")), "{not:?}");
    }

    #[test]
    fn the_document_says_where_a_time_is_from() {
        let json = |row| serde_json::to_value(row).unwrap();
        let here = json(row("ran", Some((800.0, Origin::ThisRun))));
        assert_eq!(here["published_from"], "this-run");
        assert_eq!(here["published_run"]["regret"], 81.0);
        let elsewhere = json(row("did-not", Some((700.0, Origin::Elsewhere))));
        assert_eq!(elsewhere["published_from"], "elsewhere");
        assert!(elsewhere.get("published_run").is_none(), "{elsewhere}");
    }
}
