//! Addresses of coordinators as people write them: `http://host:port`, or `https://` with TLS.

use std::net::IpAddr;

use posse_core::ConfigError;
use tonic::codegen::http::Uri;

/// The addresses in `text`, with commas between them where coordinators take over from each other. Fails, in the name of
/// the setting `name`, if one of them cannot be the address of a coordinator.
pub(crate) fn addresses<'a>(name: &'static str, text: &'a str) -> Result<Vec<&'a str>, ConfigError> {
    let urls: Vec<&str> = text.split(',').map(str::trim).collect();
    urls.iter().try_for_each(|url| check(url).map_err(|allowed| ConfigError::new(name, *url, allowed)))?;
    Ok(urls)
}

fn check(url: &str) -> Result<(), &'static str> {
    let shape = "it must look like http://127.0.0.1:7447 or https://example.com:7447";
    let uri: Uri = url.parse().map_err(|_| shape)?;
    let host = uri.host().filter(|host| !host.is_empty());
    if host.is_none() || !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(shape);
    }
    // The port as it was written: one that is no number of 16 bits reads as if there were none.
    let written = uri.authority().and_then(|all| all.as_str().rsplit_once(':')).map(|(_, port)| port);
    if written.is_some_and(|port| !port.ends_with(']')) && uri.port_u16().is_none_or(|port| port == 0) {
        return Err("its port must be between 1 and 65535");
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err("it must end with the port: a coordinator has no pages");
    }
    Ok(())
}

/// Whether an address is certainly on this machine: a name that only begins like one is not.
#[must_use]
pub fn is_local(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether a process that listens at `listen` would connect to itself at `url`.
#[cfg(feature = "coordinator")]
pub(crate) fn is_own(url: &str, listen: std::net::SocketAddr) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let standard = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    // Port 0 is any free one, which is not known yet.
    let same_port = listen.port() != 0 && uri.port_u16().unwrap_or(standard) == listen.port();
    let everywhere = listen.ip().is_unspecified() || listen.ip().is_loopback();
    same_port && ((everywhere && is_local(url)) || host.parse() == Ok(listen.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_an_address_of_a_coordinator_is_refused() {
        let good = [
            "http://127.0.0.1:7447",
            "https://root.example:7447/",
            "https://root.example",
            "http://[::1]:7447",
            "https://a:7447, https://b:7447",
        ];
        for text in good {
            addresses("coordinator", text).unwrap_or_else(|error| panic!("{error}"));
        }
        let wrong = [
            "",
            "root.example:7447",
            "ftp://root.example:7447",
            "http://",
            "http://:7447",
            "http://root.example:0",
            "http://root.example:99999",
            "http://root.example:port",
            "https://root.example:7447/relay",
            "https://root.example:7447?x=1",
            "https://a:7447,",
        ];
        for text in wrong {
            let error = addresses("coordinator", text).expect_err(text);
            assert_eq!(error.name, "coordinator");
        }
    }

    #[test]
    fn only_loopback_is_local_whatever_an_address_begins_with() {
        for url in
            ["http://localhost:7447", "http://127.0.0.1:7447/", "http://127.8.9.1", "http://[::1]:7447"]
        {
            assert!(is_local(url), "{url}");
        }
        let elsewhere = [
            "http://localhost.example.com:7447",
            "http://127.0.0.1.example.com",
            "http://127.0.0.1@example.com:7447",
            "http://10.0.0.1:7447",
            "example.com",
        ];
        for url in elsewhere {
            assert!(!is_local(url), "{url}");
        }
    }

    #[test]
    #[cfg(feature = "coordinator")]
    fn an_own_address_is_recognised_however_it_is_written() {
        let everywhere: std::net::SocketAddr = ([0, 0, 0, 0], 7447).into();
        assert!(is_own("https://localhost:7447", everywhere));
        assert!(is_own("http://127.0.0.1:7447", everywhere));
        assert!(is_own("http://10.1.2.3:7447", ([10, 1, 2, 3], 7447).into()));
        assert!(!is_own("http://localhost:7447", ([10, 1, 2, 3], 7447).into()), "another process is there");
        assert!(!is_own("http://localhost:7448", everywhere));
        assert!(!is_own("https://root.example:7447", everywhere));
        assert!(!is_own("http://localhost:7447", ([127, 0, 0, 1], 0).into()));
    }
}
