//! Evidence in few bits.

use super::{MAX_DIMENSION, v1};
use crate::error::DecodeError;
use crate::rounded::{Rounded, RoundedMoment};

pub(super) fn rounded_to_wire(rounded: &Rounded) -> v1::Evidence {
    let (along, moment) = match rounded.moment.clone() {
        RoundedMoment::Along(along) => (along, Vec::new()),
        RoundedMoment::Whole(moment) => (Vec::new(), moment),
    };
    let matrix = v1::Rounded {
        pivots: rounded.pivots.clone(),
        roots: rounded.roots.clone(),
        bits: rounded.bits,
        shares: rounded.shares.clone(),
        along,
        moment,
    };
    v1::Evidence {
        count: rounded.count,
        moment: Vec::new(),
        matrix: Some(v1::evidence::Matrix::Rounded(matrix)),
        dimension: u32::try_from(rounded.dimension).unwrap_or(u32::MAX),
    }
}

/// The evidence of `count` observations of `d` features, checked for everything that unpacking relies on.
pub(super) fn rounded_from_wire(d: usize, count: u64, matrix: v1::Rounded) -> Result<Rounded, DecodeError> {
    debug_assert!(d <= MAX_DIMENSION, "checked by the caller");
    let invalid = |why| Err(DecodeError::invalid("evidence", why));
    let v1::Rounded { pivots, roots, bits, shares, along, moment } = matrix;
    if !super::are_pivots(d, &pivots) || roots.len() != pivots.len() {
        return invalid("the factor does not fit the vector");
    }
    if !(2..=24).contains(&bits) || shares.len() != Rounded::share_bytes(d, pivots.len(), bits) {
        return invalid("the factor does not have the bits that it names");
    }
    if !roots.iter().all(|root| root.is_normal() && *root > 0.0) {
        return invalid("a pivot is not a positive number");
    }
    let moment = match (along.is_empty(), moment.is_empty()) {
        (_, true) if along.len() == pivots.len() => RoundedMoment::Along(along),
        (true, false) if moment.len() == d => RoundedMoment::Whole(moment),
        _ => return invalid("the vector does not fit the factor"),
    };
    let (RoundedMoment::Along(numbers) | RoundedMoment::Whole(numbers)) = &moment;
    if !numbers.iter().all(|v| v.is_finite()) {
        return invalid("not all numbers are finite");
    }
    if pivots.len() as u64 > count || (count == 0 && numbers.iter().any(|v| *v != 0.0)) {
        return invalid("more numbers than observations");
    }
    Ok(Rounded::new((d, count), (pivots, roots), (bits, shares), moment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Evidence;

    /// Two observations of three features, and the parts of their encoding.
    fn encoded() -> (u64, v1::Rounded) {
        let mut evidence = Evidence::none(3);
        evidence.observe(&[1.0, 0.5, 0.0], 1.0).unwrap();
        evidence.observe(&[0.0, 1.0, -0.5], 0.5).unwrap();
        let wire = rounded_to_wire(&Rounded::upload(&evidence).unwrap());
        let Some(v1::evidence::Matrix::Rounded(matrix)) = wire.matrix else { panic!("it is rounded") };
        (wire.count, matrix)
    }

    #[test]
    fn parts_that_do_not_fit_each_other_are_refused() {
        let (count, good) = encoded();
        assert!(rounded_from_wire(3, count, good.clone()).is_ok());
        let break_it: [fn(&mut v1::Rounded); 11] = [
            |m| m.pivots[0] = 3,
            |m| m.pivots[1] = m.pivots[0],
            |m| m.roots.truncate(1),
            |m| m.roots[0] = 0.0,
            |m| m.roots[0] = f32::NAN,
            |m| m.bits = 1,
            |m| m.bits = 25,
            |m| m.shares.push(0),
            |m| m.along.truncate(1),
            |m| m.along[0] = f32::INFINITY,
            |m| m.moment = vec![0.0; 3],
        ];
        for (place, break_it) in break_it.into_iter().enumerate() {
            let mut bad = good.clone();
            break_it(&mut bad);
            assert!(rounded_from_wire(3, count, bad).is_err(), "{place}");
        }
        assert!(rounded_from_wire(3, 1, good.clone()).is_err(), "two columns of one observation");
        assert!(rounded_from_wire(4, count, good).is_err(), "another dimension");
    }
}
