//! Keys, which tell callers apart.

use std::error::Error as StdError;
use std::fmt;
use std::future::ready;
use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};

use super::client_address::{self, TrustedProxies};
use super::name;
use super::request::RequestHead;
use crate::error::{Error, Operation};

pub(crate) type KeyError = Box<dyn StdError + Send + Sync>;

/// A way to tell the callers of a [`Limit`](super::Limit) apart: each key has its own limiter.
///
/// A request without a key passes uncounted; [`or`](Key::or) gives such requests another key.
///
/// ```
/// use redisson_rate_limiter::web::Key;
///
/// // By API key, or by address for callers without one.
/// let by_caller = Key::header("x-api-key").hashed().or(Key::peer());
/// // By tenant and path, both from the request.
/// let tenant = Key::from_fn(|request| Some(request.path().split('/').nth(1)?.to_owned()));
/// let by_tenant_and_path = Key::all([tenant, Key::path()]);
/// ```
///
/// # As a name
///
/// A key becomes the end of the limiter's name: `NAME:KEY`. Visible ASCII stays as it is. Braces, quotes,
/// `\`, `|`, `%`, all other bytes, and a colon before `value`, `permits`, `timeout` or `lanes` are percent-encoded, so no
/// caller can choose a name that means something else to the server. A key that has more than 128 characters with that is
/// replaced by its SHA-256. An empty key counts as no key.
#[derive(Clone)]
pub struct Key {
    find: Arc<KeyFn>,
    /// Counts for the keys that this one consists of, unless they have their own.
    ipv6_prefix: Option<u8>,
    pub(super) is_global: bool,
    /// Whether this key may be the hash of something that a caller sent.
    pub(super) has_hash: bool,
    /// More [alternative](Key::or) marks than any key found by this one can begin with.
    alternatives: usize,
    /// Why this key can never be found, if it cannot.
    pub(super) mistake: Option<Error>,
}

/// The key of a request; the number is that of bits of IPv6 addresses that count.
type KeyFn = dyn Fn(&RequestHead<'_>, Option<u8>) -> KeyFuture + Send + Sync;
pub(crate) type KeyFuture = BoxFuture<'static, Result<Option<String>, KeyError>>;

impl Key {
    /// No key: all requests share one limiter, named after the limit.
    pub fn global() -> Self {
        Key { is_global: true, ..Key::of(|_, _| ready(Ok(Some(String::new()))).boxed()) }
    }

    /// The address of the other end of the connection, cut to its 64-bit network if it is IPv6. Behind a proxy, use
    /// [`client`](Self::client).
    ///
    /// A request whose address is unknown is answered with 500; otherwise a limit by address would not limit
    /// anything. With axum, serve with `redisson_rate_limiter::serve::serve`; with other tower services, say where
    /// the address is with `RateLimitLayer::peer_from`.
    pub fn peer() -> Self {
        Key::address(|request| request.peer())
    }

    /// The client's address behind trusted proxies, cut to its 64-bit network if it is IPv6; if the connection does
    /// not come from one of the proxies, that of [`peer`](Self::peer), which it needs in any case.
    pub fn client(proxies: TrustedProxies) -> Self {
        Key::address(move |request| proxies.client(request))
    }

    /// Uses the first `bits` (1 to 128) of IPv6 addresses, so that all addresses of a customer share a
    /// limiter. Affects [`peer`](Self::peer) and [`client`](Self::client), also within a key that is made of several,
    /// unless they have a prefix of their own.
    #[must_use]
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        Key { ipv6_prefix: Some(bits.clamp(1, 128)), ..self }
    }

    /// The first header of this name. Requests without it, or with an empty one, have no key.
    ///
    /// Callers choose their headers: unless something has validated it, a caller can have as many limiters as it
    /// likes. If the header is a secret, use [`hashed`](Self::hashed) too.
    pub fn header(name: &str) -> Self {
        let mistake = super::check_header_name(name).err();
        let name = name.to_owned();
        let found = move |request: &RequestHead<'_>| request.header_bytes(&name).and_then(part);
        Key { mistake, ..Key::of(move |request, _| ready(Ok(found(request))).boxed()) }
    }

    /// The [path](RequestHead::path), without the query. If it contains identifiers, each one has its own
    /// limiter; axum's `MatchedPath`, read as an [extension](RequestHead::extension), contains none.
    pub fn path() -> Self {
        Key::from_fn(|request| Some(request.path().to_owned()))
    }

    /// The method.
    pub fn method() -> Self {
        Key::from_fn(|request| Some(request.method().to_owned()))
    }

    /// All of these keys together. A request that lacks one of them has no key.
    pub fn all(keys: impl IntoIterator<Item = Key>) -> Self {
        let keys: Vec<Key> = keys.into_iter().collect();
        Key {
            has_hash: keys.iter().any(|key| key.has_hash),
            // A composed key begins with its first part.
            alternatives: keys.first().map_or(1, |key| key.alternatives),
            mistake: keys.iter().find_map(|key| key.mistake.clone()),
            ..Key::of(move |request, prefix| {
                let parts: Vec<_> = keys.iter().map(|key| key.find(request, prefix)).collect();
                async move {
                    let mut found = Vec::with_capacity(parts.len());
                    for part in parts {
                        let Some(part) = part.await? else { return Ok(None) };
                        found.push(part);
                    }
                    Ok(Some(found.join(name::SEPARATOR)))
                }
                .boxed()
            })
        }
    }

    /// This key, or the other one if a request does not have it; functions of both are called for each request.
    /// The other key's name begins with `%or-`, which no caller can send, or is the hash of such a name.
    #[must_use]
    pub fn or(self, other: Key) -> Self {
        // Otherwise a caller could send, as the first key, what another caller has as the second.
        let mark = name::ALTERNATIVE.repeat(self.alternatives);
        Key {
            has_hash: self.has_hash || other.has_hash,
            alternatives: self.alternatives + other.alternatives,
            mistake: self.mistake.clone().or_else(|| other.mistake.clone()),
            ..Key::of(move |request, prefix| {
                // Both, because the request is gone by the time that the first key is known.
                let (first, other) = (self.find(request, prefix), other.find(request, prefix));
                let mark = mark.clone();
                async move {
                    match first.await? {
                        None => Ok(other.await?.map(|key| mark + &key)),
                        found => Ok(found),
                    }
                }
                .boxed()
            })
        }
    }

    /// The SHA-256 of this key, so that a secret such as a token does not appear in a name that operators can see.
    ///
    /// **This hides only what nobody can guess**, such as a random token. For phone numbers, e-mail addresses or
    /// short numbers, which can be found by hashing all candidates, use [`hashed_with`](Self::hashed_with).
    #[must_use]
    pub fn hashed(self) -> Self {
        Key { has_hash: true, mistake: self.mistake.clone(), ..self.then(name::hashed) }
    }

    /// The HMAC-SHA-256 of this key with a secret, without which nobody can try values out: for guessable values such
    /// as phone numbers and e-mail addresses. All services that share the limiters need the same secret, of at least
    /// 16 random bytes; a shorter one is refused when the limits are built.
    #[must_use]
    pub fn hashed_with(self, secret: impl AsRef<[u8]>) -> Self {
        let secret = secret.as_ref().to_owned();
        let is_short = secret.len() < SHORTEST_SECRET;
        let mistake = is_short.then(|| {
            let detail = format!(
                "a secret of {} bytes for `hashed_with`: must be {SHORTEST_SECRET} or more, so that nobody can guess it",
                secret.len()
            );
            Error::invalid(Operation::Limits, detail)
        });
        let mistake = mistake.or_else(|| self.mistake.clone());
        Key { has_hash: true, mistake, ..self.then(move |key| name::hashed_with(&secret, key)) }
    }

    /// The key that this function returns; `None` lets the request pass uncounted.
    pub fn from_fn(
        key: impl Fn(&RequestHead<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Key::from_async_fn(move |request| ready(Ok::<_, KeyError>(key(request))))
    }

    /// The key that this function's future returns, for example from a database; `None` lets the request pass
    /// uncounted, and an error is answered with 500. The function copies what the future needs from the request. All
    /// keys of a request are found before any permit is taken.
    pub fn from_async_fn<F, Fut, E>(key: F) -> Self
    where
        F: Fn(&RequestHead<'_>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<String>, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Key::of(move |request, _| {
            let found = key(request);
            async move {
                let found = found.await.map_err(Into::into)?;
                Ok(found.and_then(|key| part(key.as_bytes())))
            }
            .boxed()
        })
    }

    fn of(
        find: impl Fn(&RequestHead<'_>, Option<u8>) -> KeyFuture + Send + Sync + 'static,
    ) -> Self {
        Key {
            find: Arc::new(find),
            ipv6_prefix: None,
            is_global: false,
            has_hash: false,
            alternatives: 1,
            mistake: None,
        }
    }

    fn address(
        address: impl Fn(&RequestHead<'_>) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        Key::of(move |request, prefix| {
            let address = address(request).ok_or_else(|| NO_ADDRESS.into());
            let bits = prefix.unwrap_or(IPV6_PREFIX);
            let key = address.map(|address| Some(client_address::text(address, bits)));
            ready(key).boxed()
        })
    }

    fn then(self, change: impl Fn(&str) -> String + Clone + Send + Sync + 'static) -> Self {
        Key::of(move |request, prefix| {
            let change = change.clone();
            self.find(request, prefix).map_ok(move |key| key.map(|key| change(&key))).boxed()
        })
    }

    /// The key of a request; the prefix is that of the key that this one is a part of.
    pub(super) fn find(&self, request: &RequestHead<'_>, ipv6_prefix: Option<u8>) -> KeyFuture {
        (self.find)(request, self.ipv6_prefix.or(ipv6_prefix))
    }
}

/// The bits of an IPv6 address that count, unless a key says otherwise: the network of one site.
const IPV6_PREFIX: u8 = 64;

/// The shortest secret of [`Key::hashed_with`], in bytes.
const SHORTEST_SECRET: usize = 16;

/// A part of a key; `None` if it is empty.
fn part(text: &[u8]) -> Option<String> {
    (!text.trim_ascii().is_empty()).then(|| name::escaped(text))
}

const NO_ADDRESS: &str = "the address of the connection is not known: with axum, serve by \
    `redisson_rate_limiter::serve::serve` (feature `axum`); with others of tower, see `RateLimitLayer::peer_from`";

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key { is_global, has_hash, .. } = self;
        let mut debug = f.debug_struct("Key");
        debug.field("is_global", is_global).field("has_hash", has_hash).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "tower", not(shuttle)))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The key of a request with these headers, if it has one.
    fn key(key: &Key, headers: &[Option<Vec<u8>>]) -> Option<String> {
        let mut request = http::Request::new(());
        for (index, value) in headers.iter().enumerate() {
            if let Some(value) = value {
                let name = http::HeaderName::try_from(format!("x-{index}")).unwrap();
                let value = http::HeaderValue::from_bytes(value).unwrap();
                request.headers_mut().insert(name, value);
            }
        }
        key.find(&RequestHead::of(&request, None), None).now_or_never().unwrap().unwrap()
    }

    fn header(index: usize, is_async: bool) -> Key {
        match is_async {
            false => Key::header(&format!("x-{index}")),
            true => Key::from_async_fn(move |request| {
                let value = request.header(&format!("x-{index}")).map(str::to_owned);
                async move { Ok::<_, KeyError>(value) }
            }),
        }
    }

    #[test]
    fn a_header_is_not_the_address_of_another_caller() {
        let by_caller = header(0, false).or(header(1, false));
        let sent = |first: &str| key(&by_caller, &[Some(first.into())]).unwrap();
        let address = key(&by_caller, &[None, Some(b"203.0.113.9".into())]).unwrap();
        assert_eq!(address, "%or-203.0.113.9");
        assert_eq!(sent("203.0.113.9"), "203.0.113.9");
        assert_ne!(sent(&address), address);
    }

    /// Otherwise a caller who owns a larger network than a /64 would have thousands of limiters.
    #[test]
    fn a_prefix_counts_for_all_parts_that_have_none() {
        let peer = "2001:db8:1:2::7".parse().ok();
        let found = |key: Key| {
            let request = http::Request::new(());
            key.find(&RequestHead::of(&request, peer), None)
                .now_or_never()
                .unwrap()
                .unwrap()
                .unwrap()
        };
        assert_eq!(found(Key::peer()), "2001:db8:1:2::/64");
        let by_caller = || header(0, false).or(Key::peer());
        assert_eq!(found(by_caller().ipv6_prefix(48)), "%or-2001:db8:1::/48");
        let all = Key::all([Key::method(), by_caller(), Key::peer().ipv6_prefix(32)]);
        assert_eq!(found(all.ipv6_prefix(56)), "GET|%or-2001:db8:1::/56|2001:db8::/32");
        let hashed = |key: Key| found(key.hashed());
        assert_eq!(
            found(Key::peer().hashed().ipv6_prefix(48)),
            hashed(Key::peer().ipv6_prefix(48))
        );
    }

    #[test]
    fn an_alternative_of_several_is_not_an_alternative_within_them() {
        let several = Key::all([header(0, false).or(header(1, false)), header(2, false)]);
        let by = several.or(Key::all([header(3, false), header(4, false)]));
        let [address, x] = ["203.0.113.9", "x"].map(|text| Some(text.as_bytes().to_vec()));
        let within = key(&by, &[None, address.clone(), x.clone()]);
        assert_ne!(within, key(&by, &[None, None, None, address, x]));
    }

    proptest! {
        #[test]
        fn keys_of_different_alternatives_are_different(
            is_async in any::<[bool; 4]>(),
            values in proptest::collection::vec("(%or-|%|a|b){1,3}", 2..6),
        ) {
            let [a, b, c, d] = [0, 1, 2, 3].map(|index| header(index, is_async[index]));
            for alternatives in [
                a.clone().or(b.clone()).or(c.clone()).or(d.clone()),
                a.clone().or(b.clone().or(c.clone().or(d.clone()))),
                a.clone().or(b.clone()).or(c.clone().or(d.clone())),
                Key::all([a.clone().or(b.clone())]).or(Key::all([c.clone()]).or(d.clone())),
                Key::all([Key::global(), a.or(b)]).or(Key::all([c]).or(d)),
            ] {
                let mut found = BTreeMap::new();
                for value in &values {
                    for index in 0..4 {
                        let mut headers = vec![None; 4];
                        headers[index] = Some(value.clone().into_bytes());
                        let key = key(&alternatives, &headers).unwrap();
                        let of = (index, value);
                        prop_assert_eq!(*found.entry(key).or_insert(of), of);
                    }
                }
            }
        }
    }
}
