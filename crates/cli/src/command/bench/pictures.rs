//! Draws how the time of an interaction grows.

use std::path::Path;

use posse_bench::{Along, GrowthPoint};

use crate::report::{Line, Lines};

/// Writes a picture for each size into `directory`, in two colours of paper. Of several rounds each point has its least time:
/// what else the machine does only adds.
pub(super) fn write(growth: &[GrowthPoint], directory: &Path) -> anyhow::Result<()> {
    Along::ALL.into_iter().try_for_each(|along| picture(growth, along).write(directory))
}

fn picture(growth: &[GrowthPoint], along: Along) -> Lines {
    let mut lines: Vec<Line> = Vec::new();
    for point in growth.iter().filter(|point| point.along == along) {
        let (size, micros) = (point.size as f64, point.micros);
        let known = lines.iter().position(|(name, _)| name == point.name);
        let place = known.unwrap_or_else(|| {
            lines.push((point.name.to_owned(), Vec::new()));
            lines.len() - 1
        });
        let line = &mut lines[place].1;
        match line.iter_mut().find(|(earlier, _)| *earlier == size) {
            Some((_, least)) => *least = least.min(micros),
            None => line.push((size, micros)),
        }
    }
    Lines {
        id: format!("performance-{}", along.word()),
        title: format!("Time of an interaction by the number of {}", along.word()),
        x: along.word().to_owned(),
        y: "microseconds an interaction".to_owned(),
        lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(along: Along, size: u64, micros: f64) -> GrowthPoint {
        GrowthPoint { name: "one/x=1", along, size, micros, messages: 0.0 }
    }

    #[test]
    fn of_several_rounds_each_point_has_the_least_time() {
        let rounds = [(10, 2.0), (20, 3.0), (10, 1.5), (20, 4.0)];
        let growth = rounds.map(|(size, micros)| point(Along::Arms, size, micros));
        assert_eq!(picture(&growth, Along::Arms).lines[0].1, [(10.0, 1.5), (20.0, 3.0)]);
    }

    #[test]
    fn every_size_has_a_picture_for_light_and_for_dark_pages() {
        let growth: Vec<GrowthPoint> = Along::ALL
            .into_iter()
            .flat_map(|along| [point(along, 10, 1.5), point(along, 100, 2.5), point(along, 1000, 9.0)])
            .collect();
        let directory = tempfile::tempdir().unwrap();
        write(&growth, directory.path()).unwrap();
        for along in Along::ALL {
            let read = |ending: &str| {
                let name = format!("performance-{}{ending}.svg", along.word());
                std::fs::read_to_string(directory.path().join(name)).unwrap()
            };
            let (light, dark) = (read(""), read("-dark"));
            assert!(light.contains("microseconds an interaction"));
            // Three of the line, and one in the legend.
            assert_eq!(light.matches("class=\"mark\"").count(), 4, "every point can be seen");
            assert_ne!(light, dark);
        }
    }
}
