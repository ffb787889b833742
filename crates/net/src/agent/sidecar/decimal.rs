//! Numbers as JSON writes them, read in one pass.
//!
//! An offer has hundreds of numbers with up to 17 digits. Finding where a number ends and giving its text to Rust's parser looks
//! at every digit twice; here digits are summed up while they are found, eight at a time. What cannot be decided in 64 bits is
//! left to Rust's parser: the results are the same, bit for bit.

/// Digits whose value certainly fits into 64 bits.
const MOST_DIGITS: usize = 19;
/// Powers of ten that are exact in double precision.
const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];
/// For q from 1 to 27: the first 64 bits of 5⁻ᵠ, cut off, and how many bits 5ᵠ has. So 5⁻ᵠ is the first number or up to one more,
/// times 2 to the power of −(63 + the second).
const RECIPROCALS: [(u64, i32); 28] = {
    let mut table = [(0, 0); 28];
    let (mut power, mut q) = (1_u64, 1);
    while q < table.len() {
        power *= 5;
        let bits = 64 - power.leading_zeros() as i32;
        table[q] = (((1_u128 << (63 + bits)) / power as u128) as u64, bits);
        q += 1;
    }
    table
};

/// The number that begins at byte `at`, and the first byte after it. `None` if JSON does not write numbers so, or if it is
/// larger than double precision holds.
pub(super) fn number(text: &str, at: usize) -> Option<(f64, usize)> {
    let bytes = text.as_bytes();
    let is_negative = bytes.get(at) == Some(&b'-');
    let start = at + usize::from(is_negative);
    let (mut digits, mut end) = sum(bytes, start, 0);
    let whole = end - start;
    let begins_with_zero = bytes.get(start) == Some(&b'0');
    if whole == 0 || (whole > 1 && begins_with_zero) {
        return None;
    }
    let (mut fraction, mut significant) = (0, whole);
    if bytes.get(end) == Some(&b'.') {
        let from = end + 1;
        (digits, end) = sum(bytes, from, digits);
        fraction = end - from;
        if fraction == 0 {
            return None;
        }
        significant += fraction;
        if significant > MOST_DIGITS && begins_with_zero {
            significant = bytes[from..end].iter().skip_while(|digit| **digit == b'0').count();
        }
    }
    let mut has_exponent = false;
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        has_exponent = true;
        let from = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        (_, end) = sum(bytes, from, 0);
        if end == from {
            return None;
        }
    }
    let short = (!has_exponent && significant <= MOST_DIGITS).then(|| shifted(digits, fraction)).flatten();
    let value = match short {
        Some(value) if is_negative => -value,
        Some(value) => value,
        None => text[at..end].parse().ok()?,
    };
    value.is_finite().then_some((value, end))
}

/// Appends the digits from byte `at` on to `digits`, modulo 2⁶⁴, and returns the first byte that is none.
fn sum(bytes: &[u8], mut at: usize, mut digits: u64) -> (u64, usize) {
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>)
        && let Some(value) = eight_digits(*eight)
    {
        digits = digits.wrapping_mul(100_000_000).wrapping_add(value);
        at += 8;
    }
    while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
        digits = digits.wrapping_mul(10).wrapping_add(digit.into());
        at += 1;
    }
    (digits, at)
}

/// The value of eight digits, or nothing if one of them is none: neighbours are put together to four numbers of two digits, to two
/// of four, and to one.
const fn eight_digits(digits: [u8; 8]) -> Option<u64> {
    const HIGH: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    let bytes = u64::from_le_bytes(digits);
    // '0' to '9' are 0x30 to 0x39: six more carries into the upper half of a byte for everything from 0x3a on.
    let carried = bytes.wrapping_add(0x0606_0606_0606_0606) & HIGH;
    if (bytes & HIGH) | (carried >> 4) != 0x3333_3333_3333_3333 {
        return None;
    }
    let ones = bytes - 0x3030_3030_3030_3030;
    let twos = ((10 * ones) + (ones >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = ((100 * twos) + (twos >> 16)) & 0x0000_ffff_0000_ffff;
    Some(((10_000 * fours) + (fours >> 32)) & 0xffff_ffff)
}

/// `digits` divided by 10 to the power of `q`, rounded to the nearest double, or nothing where 64 bits do not tell which one
/// that is.
fn shifted(digits: u64, q: usize) -> Option<f64> {
    if q == 0 {
        return Some(digits as f64);
    }
    if digits < 1 << 53 && q < POWERS_OF_TEN.len() {
        // Both are exact, and a division rounds once.
        return Some(digits as f64 / POWERS_OF_TEN[q]);
    }
    let (reciprocal, bits) = *RECIPROCALS.get(q)?;
    let zeros = digits.leading_zeros();
    let all = digits << zeros;
    let product = u128::from(all) * u128::from(reciprocal);
    let (high, low) = ((product >> 64) as u64, product as u64);
    // The true product is larger by less than `all`, which may carry one into `high`. All but the first 53 bits are rounded.
    let extra = 11 - high.leading_zeros();
    let (kept, rest, half) = (high >> extra, high & ((1 << extra) - 1), 1 << (extra - 1));
    let rounds_up = if rest == half {
        // Exactly between two doubles, or a little above.
        if low == 0 {
            return None;
        }
        true
    } else if rest + 1 == half {
        low.checked_add(all)?;
        false
    } else {
        rest > half
    };
    let exponent = extra as i32 + 64 - zeros as i32 - q as i32 - 63 - bits;
    let power_of_two = f64::from_bits(((1023 + exponent) as u64) << 52);
    Some((kept + u64::from(rounds_up)) as f64 * power_of_two)
}

#[cfg(test)]
mod tests {
    use posse_core::{Seed, Stream};

    use super::*;

    fn digits(random: &mut Stream, most: u64) -> String {
        (0..=random.below(most)).map(|_| char::from(b'0' + random.below(10) as u8)).collect()
    }

    fn texts() -> Vec<String> {
        let mut random = Seed(23).stream("decimal", 0, 0);
        let mut texts: Vec<String> = "0 -0 -0.0 0.5 1e5 10 1.25E-3 18446744073709551615 18446744073709551616 9007199254740993 \
            9007199254740993.0 0.30000000000000004 2.2250738585072014e-308 5e-324 1e-400 1.7976931348623157e308 \
            0.000000000000000000000000001 0.0000000000000000000000000001 1.00000000000000011102230246251565"
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        for _ in 0..100_000 {
            let usual = random.normal() * 10_f64.powi(random.below(12) as i32 - 6);
            texts.push(match random.below(6) {
                0 => format!("{}", f64::from_bits(random.below(u64::MAX)).abs().min(1e20)),
                1 => format!("{}.{}", random.below(1000), digits(&mut random, 30)),
                2 => format!("0.{}{}", "0".repeat(random.below(12) as usize), digits(&mut random, 19)),
                3 => format!("{}.{}", random.below(1 << 60), digits(&mut random, 4)),
                4 => format!("{usual:.18}"),
                _ => format!("{usual}"),
            });
        }
        // In the middle between two doubles, and next to it.
        for _ in 0..20_000 {
            let numerator = ((1_u64 << 53) + random.below(1 << 53)) * 2 + 1;
            let half = u128::from(numerator) * 25;
            for near in [half - 1, half, half + 1] {
                texts.push(format!("{}.{:02}", near / 100, near % 100));
            }
        }
        texts
    }

    #[test]
    fn numbers_are_read_as_rust_reads_them_bit_for_bit() {
        for text in texts() {
            let Ok(expected) = text.parse::<f64>() else { panic!("{text}") };
            for (text, sign) in [(text.clone(), 1.0), (format!("-{}", text.trim_start_matches('-')), -1.0)] {
                let expected = if text.starts_with('-') { -expected.abs() } else { sign * expected };
                let spaced = format!("[{text}]");
                let (value, end) = number(&spaced, 1).unwrap_or_else(|| panic!("not read: {text}"));
                assert_eq!((value.to_bits(), end), (expected.to_bits(), text.len() + 1), "{text}");
            }
        }
    }

    #[test]
    fn nearly_all_usual_numbers_are_decided_in_64_bits() {
        let mut random = Seed(23).stream("undecided", 0, 0);
        let mut undecided = 0;
        for _ in 0..100_000 {
            let (digits, q) = ((1 << 53) + random.below(1 << 60), 1 + random.below(27) as usize);
            undecided += usize::from(shifted(digits, q).is_none());
        }
        assert!(undecided < 200, "{undecided} of 100 000");
    }

    #[test]
    fn what_is_no_number_of_json_is_not_read() {
        for text in
            ["", "-", "+1", ".5", "1.", "01", "00", "-01.5", "1e", "1e+", "1.e5", "inf", "NaN", "1e999", "x"]
        {
            assert_eq!(number(text, 0), None, "{text}");
        }
        // The number ends where its grammar does; what follows is the business of the caller.
        assert_eq!(number("1.5x", 0), Some((1.5, 3)));
        assert_eq!(number("-12345678,", 0), Some((-12_345_678.0, 9)));
        assert_eq!(number("1234567:", 0), Some((1_234_567.0, 7)));
    }
}
