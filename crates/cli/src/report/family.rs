//! Settings that differ in one swept number only: the dots of one curve.

use super::material::Line;
use crate::experiment::values::quantity;

/// Settings that are drawn as one curve.
#[derive(Debug)]
pub(super) struct Family {
    /// The part of their names that the settings have in common.
    pub(super) name: String,
    /// Their places, each with the value of what is swept.
    pub(super) members: Vec<(usize, Option<String>)>,
}

/// All families, in the order of the plan. What is swept is the last number that an algorithm's settings
/// take several values of, or else the last of the world's.
pub(super) fn families(lines: &[Line<'_>]) -> Vec<Family> {
    let is_number = |(path, value): &(String, String)| path != "algorithm" && quantity(value).is_some();
    sorted(lines, |choices| {
        let own = choices.iter().rposition(|c| c.0.starts_with("algorithm.") && is_number(c));
        own.or_else(|| choices.iter().rposition(is_number))
    })
}

/// The families of settings that differ in `path` only. Algorithms may have a setting of that name in different places, such
/// as `epsilon` in a table of its own and without: what has none at `path` is taken by the setting's name.
pub(super) fn families_along(lines: &[Line<'_>], path: &str) -> Vec<Family> {
    let name = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    sorted(lines, |choices| {
        let exact = choices.iter().position(|(own, _)| own == path);
        exact.or_else(|| choices.iter().position(|(own, _)| name(own) == name(path)))
    })
}

/// Lines by what they have in common beside the choice that is `swept`.
fn sorted(lines: &[Line<'_>], swept: impl Fn(&[(String, String)]) -> Option<usize>) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        let choices = &line.group.choices;
        // The parts of an id are the choices, in the same order.
        let parts: Vec<&str> = line.group.id.split('/').collect();
        let (name, value) = match swept(choices) {
            Some(swept) if parts.len() == choices.len() => {
                let rest = parts.iter().enumerate().filter(|(index, _)| *index != swept);
                let rest: Vec<&str> = rest.map(|(_, part)| *part).collect();
                (rest.join("/"), Some(choices[swept].1.clone()))
            }
            _ => (line.group.id.clone(), None),
        };
        match families.iter_mut().find(|family| family.name == name) {
            Some(family) => family.members.push((place, value)),
            None => families.push(Family { name, members: vec![(place, value)] }),
        }
    }
    families
}
