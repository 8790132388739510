// SPDX-License-Identifier: MPL-2.0

//! Removes credentials from everything that is shown or logged.
//!
//! A URI may contain a user and password, a passphrase, a token or a stream key. Only its scheme, host, port and path
//! are shown; for RTMP, the last part of the path is the key and is hidden. Messages of GStreamer may quote a URI or
//! parts of it, so the secrets of the source are replaced in them.

/// Placeholder for a removed part.
const HIDDEN: &str = "…";
/// Shorter values are not removed, because they occur in texts by chance.
const SHORTEST: usize = 4;

/// Removes possible credentials from a URI.
pub fn uri(uri: &str) -> String {
    let Some((scheme, rest)) = uri.split_once("://") else { return uri.into() };
    let (place, query) = split_query(rest);
    let (authority, path) = place.split_at(place.find('/').unwrap_or(place.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let path = match path.rsplit_once('/') {
        Some((app, key)) if is_rtmp(scheme) && !key.is_empty() => format!("{app}/{HIDDEN}"),
        _ => path.to_owned(),
    };
    let query = if query.is_empty() { String::new() } else { format!("?{HIDDEN}") };
    format!("{scheme}://{host}{path}{query}")
}

/// Removes the credentials of a source, and of all other URIs, from a text about it.
pub fn text(text: &str, source: &str) -> String {
    let mut text = text.replace(source, &uri(source));
    // Longest first, because one secret may contain another.
    let mut secrets = secrets(source);
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    for secret in secrets {
        text = text.replace(&secret, HIDDEN);
    }
    quoted(&text)
}

/// Removes credentials from the URIs in a text.
pub fn quoted(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let start = rest[..at].rfind(|c: char| !c.is_ascii_alphanumeric() && !"+.-".contains(c));
        let start = start.map_or(0, |i| i + rest[i..].chars().next().map_or(1, char::len_utf8));
        let end = rest[at..].find(|c: char| c.is_whitespace() || "\"'`<>".contains(c));
        let end = end.map_or(rest.len(), |i| at + i);
        out.push_str(&rest[..start]);
        out.push_str(&uri(&rest[start..end]));
        rest = &rest[end..];
    }
    out + rest
}

fn is_rtmp(scheme: &str) -> bool {
    scheme.starts_with("rtmp")
}

/// Splits at the query or fragment.
fn split_query(rest: &str) -> (&str, &str) {
    rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()))
}

/// Returns the parts of a URI that may be credentials, both encoded and decoded.
fn secrets(uri: &str) -> Vec<String> {
    let Some((scheme, rest)) = uri.split_once("://") else { return vec![] };
    let (place, query) = split_query(rest);
    let (authority, path) = place.split_at(place.find('/').unwrap_or(place.len()));
    let mut parts = vec![];
    if let Some((user, _)) = authority.rsplit_once('@') {
        parts.push(user);
        parts.extend(user.split(':'));
    }
    if let Some((_, key)) = path.rsplit_once('/')
        && is_rtmp(scheme)
    {
        parts.push(key);
    }
    parts.push(query.trim_start_matches(['?', '#']));
    parts.extend(query.split(['?', '&', '#', ';']).filter_map(|pair| Some(pair.split_once('=')?.1)));
    let decoded =
        parts.iter().filter_map(|part| Some(glib::uri_unescape_string(*part, None::<&str>)?.to_string()));
    let all: Vec<String> = decoded.chain(parts.iter().map(|part| (*part).to_owned())).collect();
    all.into_iter().filter(|part| part.len() >= SHORTEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_lose_what_may_be_secret() {
        for (whole, shown) in [
            ("srt://host:7001", "srt://host:7001"),
            ("srt://host:7001?mode=caller&passphrase=0123456789", "srt://host:7001?…"),
            ("srt://:7001?streamid=key", "srt://:7001?…"),
            ("rtsp://user:pass@camera/live", "rtsp://camera/live"),
            ("rtsp://user:p@ss@camera:554/live#t", "rtsp://camera:554/live?…"),
            ("rtmp://host/app/key", "rtmp://host/app/…"),
            ("https://edge/a/b.m3u8?token=abc", "https://edge/a/b.m3u8?…"),
            ("film.mp4", "film.mp4"),
            ("test:640x360@25", "test:640x360@25"),
        ] {
            assert_eq!(uri(whole), shown);
        }
    }

    #[test]
    fn texts_lose_the_secrets_of_their_source() {
        let source = "srt://me:hunter%202@host:7001/x?passphrase=abc%20defg&mode=caller";
        for said in [
            format!("cannot open {source}: refused"),
            "wrong passphrase 'abc defg'".into(),
            "wrong passphrase abc%20defg".into(),
            "user me, password hunter 2, hunter%202".into(),
            "mode=caller&passphrase=abc%20defg".into(),
            "at \"srt://other:secret@host/?q=secret\", <http://u:secret@h>".into(),
        ] {
            let shown = text(&said, source);
            for secret in ["abc", "defg", "hunter", "secret"] {
                assert!(!shown.contains(secret), "{shown}");
            }
        }
        assert_eq!(text("Could not resolve host", source), "Could not resolve host");
        assert_eq!(quoted("see srt://h:1?x=1 and ü://"), "see srt://h:1?… and ü://");
    }
}
