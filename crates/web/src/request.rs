//! Requests: which are answered, and what they ask for.
//!
//! A web page of another site can make the browser of the user send requests here. It cannot read the answers, because no
//! answer permits that (no CORS). It could if its own name led to this machine (DNS rebinding). So the `Host` of a request
//! must be an address, or `localhost`: names that somebody else controls are refused.

use std::fmt::Write as _;
use std::net::IpAddr;

use hyper::header::{self, HeaderMap};
use hyper::{Method, StatusCode};

/// The longest path and query that is looked at.
const LONGEST: usize = 8 << 10;

/// A request that is answered.
#[derive(Debug, PartialEq)]
pub struct Request {
    /// The path without `/` at its front, decoded.
    pub path: String,
    /// The query, decoded, in the order of the request.
    pub query: Query,
}

/// The keys and values of a query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query(pub Vec<(String, String)>);

impl Query {
    /// The first value of a key, unless it is empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.all(key).next()
    }

    /// Every value of a key that is not empty.
    pub fn all<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(name, value)| name == key && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// The parameters of a problem or a game: `env.KEY=VALUE`.
    pub fn parameters(&self) -> Vec<(String, String)> {
        let given = self.0.iter().filter(|(_, value)| !value.is_empty());
        given.filter_map(|(key, value)| Some((key.strip_prefix("env.")?.to_owned(), value.clone()))).collect()
    }

    /// A value as a number; an error says which key wants what.
    pub fn number<T: std::str::FromStr>(&self, key: &str, want: &str) -> Result<Option<T>, String> {
        let parse = |text: &str| text.parse().map_err(|_| format!("{key} must be {want}, got {text:?}"));
        self.get(key).map(parse).transpose()
    }
}

/// Why a request is refused.
pub type Refusal = (StatusCode, String);

/// Checks a request. `local` says that the server listens on this machine only.
pub fn check(
    method: &Method,
    target: &hyper::Uri,
    headers: &HeaderMap,
    local: bool,
) -> Result<Request, Refusal> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(|host| is_ours(host, local)) || headers.get_all(header::HOST).iter().count() != 1 {
        let message = "the Host of a request must be an address of this server or localhost".to_owned();
        return Err((StatusCode::MISDIRECTED_REQUEST, message));
    }
    if method != Method::GET && method != Method::HEAD {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "this server only reads: GET and HEAD".to_owned()));
    }
    let (path, query) = (target.path(), target.query().unwrap_or_default());
    if path.len() + query.len() > LONGEST {
        return Err((StatusCode::URI_TOO_LONG, format!("an address has at most {LONGEST} characters")));
    }
    let bad = || (StatusCode::BAD_REQUEST, "the address is not encoded as it should be".to_owned());
    let path = decode(path.strip_prefix('/').ok_or_else(bad)?, false).ok_or_else(bad)?;
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode(key, true)?, decode(value, true)?))
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(pair);
    let query = Query(pairs.collect::<Option<Vec<_>>>().ok_or_else(bad)?);
    Ok(Request { path, query })
}

/// Whether a `Host` can only mean this machine.
fn is_ours(host: &str, local: bool) -> bool {
    let name = match host.rsplit_once(':') {
        // The colons of a bare IPv6 address are inside brackets.
        Some((name, port)) if !port.ends_with(']') => {
            if port.parse::<u16>().is_err() {
                return false;
            }
            name
        }
        _ => host,
    };
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    address.parse::<IpAddr>().is_ok_and(|address| !local || address.is_loopback())
}

/// Undoes percent-encoding; `None` where it is broken or not text.
fn decode(text: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            b'+' if plus_is_space => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// A text as part of an address. Slashes are kept: they separate the folders of a path.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(method: &Method, target: &str, host: &str) -> Result<Request, StatusCode> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        check(method, &target.parse().unwrap(), &headers, true).map_err(|(status, _)| status)
    }

    #[test]
    fn a_host_is_an_address_of_this_machine_or_localhost() {
        for host in ["127.0.0.1", "127.0.0.1:8080", "localhost:1", "LOCALHOST", "[::1]:80", "[::1]"] {
            assert!(is_ours(host, true), "{host}");
        }
        for host in
            ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", ""]
        {
            assert!(!is_ours(host, true), "{host}");
            assert!(!is_ours(host, false), "{host}");
        }
        for host in ["192.168.0.7:80", "[fe80::1]:80"] {
            assert!(!is_ours(host, true) && is_ours(host, false), "{host}");
        }
        assert!(!is_ours("127.0.0.1:80:80", true) && !is_ours("localhost:x", true));
    }

    #[test]
    fn a_request_is_refused_for_its_host_before_anything_else() {
        assert_eq!(checked(&Method::POST, "/", "evil.example"), Err(StatusCode::MISDIRECTED_REQUEST));
        assert_eq!(checked(&Method::POST, "/", "localhost"), Err(StatusCode::METHOD_NOT_ALLOWED));
        assert_eq!(checked(&Method::GET, "/%f", "localhost"), Err(StatusCode::BAD_REQUEST));
        assert_eq!(checked(&Method::GET, "/%ff", "localhost"), Err(StatusCode::BAD_REQUEST));
        let long = format!("/{}", "a".repeat(LONGEST + 1));
        assert_eq!(checked(&Method::GET, &long, "localhost"), Err(StatusCode::URI_TOO_LONG));
        let mut two = HeaderMap::new();
        two.append(header::HOST, "localhost".parse().unwrap());
        two.append(header::HOST, "evil.example".parse().unwrap());
        assert!(check(&Method::GET, &"/".parse().unwrap(), &two, true).is_err());
        assert!(check(&Method::GET, &"/".parse().unwrap(), &HeaderMap::new(), true).is_err());
    }

    #[test]
    fn names_survive_being_part_of_an_address() {
        for name in ["a b", "größe/100 %", "..\\..", "a&b=c#d?e+f", "<script>"] {
            let target = format!("/runs/{}?run={}&run=", encode(name), encode(name));
            let request = checked(&Method::GET, &target, "localhost").unwrap();
            assert_eq!(request.path, format!("runs/{name}"));
            assert_eq!(request.query.all("run").collect::<Vec<_>>(), [name]);
        }
    }

    #[test]
    fn a_number_in_a_query_says_what_it_wants() {
        let query = Query(vec![("tau".into(), "x".into())]);
        assert_eq!(query.number::<f64>("tau", "a number").unwrap_err(), "tau must be a number, got \"x\"");
        assert_eq!(query.number::<f64>("beta", "a number"), Ok(None));
    }
}
