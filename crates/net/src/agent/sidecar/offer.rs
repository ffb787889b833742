//! What `/choose` takes: an offer in JSON.
//!
//! An offer of 25 arms with 25 features is 12 kB of digits, and reading them was most of the work of a choice over HTTP. So an
//! offer that is written plainly is read by [`read`], which knows nothing but two names and numbers. Whatever it does not
//! know, it leaves to serde: that decides what is wrong with a request and says so.

use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request};
use axum::http::header;
use axum::response::Json;
use serde::Deserialize;

use super::decimal;

/// An offer: for whom to choose, and the features of each arm.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Offer {
    #[serde(default)]
    pub(super) user: u64,
    pub(super) arms: Vec<Vec<f64>>,
}

impl<S: Send + Sync> FromRequest<S> for Offer {
    type Rejection = JsonRejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, JsonRejection> {
        let is_json = |kind| kind == "application/json";
        if !request.headers().get(header::CONTENT_TYPE).is_some_and(is_json) {
            // Another way to say the same, or something else.
            return Json::from_request(request, state).await.map(|Json(offer)| offer);
        }
        let bytes = Bytes::from_request(request, state).await?;
        match std::str::from_utf8(&bytes).ok().and_then(read) {
            Some(offer) => Ok(offer),
            None => Json::from_bytes(&bytes).map(|Json(offer)| offer),
        }
    }
}

/// Reads an offer that is one object with `arms` and perhaps `user`, each once, without escapes. `None` for everything else,
/// right or wrong. What it returns is what serde would, bit for bit.
fn read(text: &str) -> Option<Offer> {
    let mut scanner = Scanner { text, at: 0 };
    let (mut user, mut arms) = (None, None);
    scanner.take(b'{')?;
    loop {
        match scanner.name()? {
            "user" if user.is_none() => user = Some(scanner.natural()?),
            "arms" if arms.is_none() => arms = Some(scanner.rows()?),
            _ => return None,
        }
        match scanner.next()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    let ends = scanner.peek().is_none();
    ends.then_some(Offer { user: user.unwrap_or(0), arms: arms? })
}

/// Reads JSON from left to right. Every method returns `None` for what it does not know.
struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scanner<'t> {
    /// The next byte that is not white, without taking it.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Takes the next byte that is not white.
    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    /// A name in quotes and the colon after it.
    fn name(&mut self) -> Option<&'t str> {
        self.take(b'"')?;
        let (name, _) = self.text[self.at..].split_once('"')?;
        self.at += name.len() + 1;
        self.take(b':')?;
        Some(name)
    }

    /// A number without sign, fraction and exponent.
    fn natural(&mut self) -> Option<u64> {
        self.peek()?;
        let from = self.at;
        self.number()?;
        let number = &self.text[from..self.at];
        number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
    }

    /// A list of lists of numbers.
    fn rows(&mut self) -> Option<Vec<Vec<f64>>> {
        let mut features = 0;
        self.list(0, |scanner| {
            let row = scanner.list(features, Self::number)?;
            features = row.len();
            Some(row)
        })
    }

    /// A list, whose memory is for `capacity` items at first.
    fn list<T>(&mut self, capacity: usize, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        self.take(b'[')?;
        let mut items = Vec::with_capacity(capacity);
        if self.peek()? == b']' {
            self.at += 1;
            return Some(items);
        }
        loop {
            items.push(item(self)?);
            match self.next()? {
                b',' => {}
                b']' => return Some(items),
                _ => return None,
            }
        }
    }

    /// A finite number.
    fn number(&mut self) -> Option<f64> {
        self.peek()?;
        let (value, end) = decimal::number(self.text, self.at)?;
        self.at = end;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use posse_core::{Seed, Stream};

    use super::*;

    /// Numbers of every size, written in every way that JSON knows.
    fn number(random: &mut Stream) -> String {
        let any = f64::from_bits(random.below(u64::MAX));
        let usual = random.normal();
        match random.below(8) {
            0 => random.below(u64::MAX).to_string(),
            1 => format!("-{}", random.below(1000)),
            2 => format!("{usual:.30}"),
            3 => format!("{usual:E}"),
            4 => format!("{}e+{}", random.below(1 << 60), random.below(280)),
            5 => format!("{}.{}e-{}", random.below(10), random.below(u64::MAX), random.below(400)),
            6 if any.is_finite() => serde_json::to_string(&any).unwrap(),
            _ => serde_json::to_string(&usual).unwrap(),
        }
    }

    fn list(random: &mut Stream, mut item: impl FnMut(&mut Stream) -> String) -> String {
        let space = [" ", "", "\n\t", "", "\r\n"][random.below(5) as usize];
        let items: Vec<String> = (0..random.below(4)).map(|_| item(random)).collect();
        format!("{space}[{space}{}{space}]", items.join(&format!("{space},")))
    }

    fn text(random: &mut Stream) -> String {
        let arms = format!("\"arms\": {}", list(random, |random| list(random, number)));
        let user = format!("\"user\":{}", random.below(u64::MAX));
        let fields = match random.below(4) {
            0 => arms,
            1 => format!("{user} , {arms}"),
            _ => format!("{arms},{user}"),
        };
        format!(" {{ {fields} }} ")
    }

    fn bits(offer: &Offer) -> Vec<Vec<u64>> {
        offer.arms.iter().map(|row| row.iter().map(|feature| feature.to_bits()).collect()).collect()
    }

    #[test]
    fn offers_that_are_written_plainly_are_read_without_serde_and_to_the_same_bits() {
        let mut random = Seed(19).stream("offer", 0, 0);
        for _ in 0..4000 {
            let text = text(&mut random);
            let offer = serde_json::from_str::<Offer>(&text).unwrap();
            let read = read(&text).unwrap_or_else(|| panic!("not read: {text}"));
            assert_eq!((read.user, bits(&read)), (offer.user, bits(&offer)), "{text}");
        }
    }

    #[test]
    fn what_is_read_without_serde_is_never_something_that_serde_refuses() {
        let mut random = Seed(19).stream("spoilt offer", 0, 0);
        let mut taken = 0;
        for _ in 0..40_000 {
            let mut bytes = text(&mut random).into_bytes();
            for _ in 0..=random.below(2) {
                let at = random.below(bytes.len() as u64) as usize;
                let other = b"0123456789-+.eE,:[]{}\"\\ unars"[random.below(29) as usize];
                match random.below(3) {
                    0 => drop(bytes.remove(at)),
                    1 => bytes.insert(at, other),
                    _ => bytes[at] = other,
                }
            }
            let text = String::from_utf8(bytes).unwrap();
            if let Some(read) = read(&text) {
                let offer = serde_json::from_str::<Offer>(&text)
                    .unwrap_or_else(|error| panic!("read, but {error}: {text}"));
                assert_eq!((read.user, bits(&read)), (offer.user, bits(&offer)), "{text}");
                taken += 1;
            }
        }
        assert!(taken > 1000, "most of what is spoilt cannot be read: {taken}");
    }
}
