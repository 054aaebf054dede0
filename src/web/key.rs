//! What tells callers apart.

use std::error::Error as StdError;
use std::fmt;
use std::iter;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::client_address::{self, TrustedProxies};
use super::name;
use super::request::RequestHead;
use crate::error::{Error, Operation};

/// Why a key could not be determined.
pub(crate) type KeyError = Box<dyn StdError + Send + Sync>;

/// What tells the callers of a [`Limit`](super::Limit) apart: each key has a limiter of its own.
///
/// A request without a key passes, uncounted: [`or`](Key::or) gives such requests another one.
///
/// ```
/// use redisson_rate_limiter::web::Key;
///
/// // By API key, and callers without one by address.
/// let by_caller = Key::header("x-api-key").or(Key::peer());
/// // By tenant and path, both from the request.
/// let tenant = Key::from_fn(|request| Some(request.path().split('/').nth(1)?.to_owned()));
/// let by_tenant_and_path = Key::all([tenant, Key::path()]);
/// // By something that has to be looked up.
/// let by_customer = Key::from_async_fn(|request| {
///     let token = request.header("x-token").map(str::to_owned);
///     async move { customer_of(token).await }
/// });
/// # async fn customer_of(token: Option<String>) -> Result<Option<String>, std::io::Error> { Ok(token) }
/// ```
///
/// # As a name
///
/// A key becomes the end of the limiter's name: `NAME:KEY`. Visible ASCII stays as it is; braces,
/// quotes, `\`, `|`, `%`, all other bytes, and a colon before `value` or `permits`, are
/// percent-encoded, so that no caller can choose a name that means something else to the server.
/// More than 128 characters are replaced by their SHA-256. The key of an [alternative](Key::or)
/// begins with `%or-`. An empty key is none.
#[derive(Clone)]
pub struct Key(Kind);

#[derive(Clone)]
enum Kind {
    Global,
    Peer { ipv6_prefix: u8 },
    Client { proxies: Arc<TrustedProxies>, ipv6_prefix: u8 },
    Header(Box<str>),
    Path,
    Method,
    All(Arc<[Key]>),
    Or(Arc<(Key, Key)>),
    Hashed(Arc<Key>),
    HashedWith(Arc<Key>, Arc<[u8]>),
    Sync(Arc<SyncFn>),
    Async(Arc<AsyncFn>),
}

type SyncFn = dyn Fn(&RequestHead<'_>) -> Option<String> + Send + Sync;
type AsyncFn = dyn Fn(&RequestHead<'_>) -> BoxFuture<'static, Found> + Send + Sync;
type Found = Result<Option<String>, KeyError>;

/// A key, ready to be a part of a name, or what it takes to find it.
pub(crate) enum Lookup {
    Found(Option<String>),
    Pending(BoxFuture<'static, Found>),
}

impl Lookup {
    fn map(self, change: impl FnOnce(String) -> String + Send + 'static) -> Lookup {
        match self {
            Lookup::Found(key) => Lookup::Found(key.map(change)),
            Lookup::Pending(key) => Lookup::Pending(async { Ok(key.await?.map(change)) }.boxed()),
        }
    }

    pub(crate) async fn resolve(self) -> Found {
        match self {
            Lookup::Found(key) => Ok(key),
            Lookup::Pending(key) => key.await,
        }
    }
}

impl Key {
    /// None: all requests share one limiter, whose name is the limit's.
    pub fn global() -> Self {
        Key(Kind::Global)
    }

    /// The address of the other end of the connection; of IPv6 its network of 64 bits. With a proxy in
    /// front, use [`client`](Self::client).
    ///
    /// A request whose address is not known is answered with 500, as a limit by address would be none
    /// otherwise. With axum, serve by `redisson_rate_limiter::serve::serve`; with others of tower, say where it is:
    /// `RateLimitLayer::peer_from`.
    pub fn peer() -> Self {
        Key(Kind::Peer { ipv6_prefix: 64 })
    }

    /// The address of the client, behind proxies that are trusted to tell it; of IPv6 its network of
    /// 64 bits. As [`peer`](Self::peer) if the connection does not come from one of them; and as for `peer`, the
    /// address of the connection has to be known.
    pub fn client(proxies: TrustedProxies) -> Self {
        Key(Kind::Client { proxies: Arc::new(proxies), ipv6_prefix: 64 })
    }

    /// Of IPv6 addresses, takes the first `bits`, 1 to 128: one limiter for all addresses of a
    /// customer. Changes [`peer`](Self::peer) and [`client`](Self::client) only.
    #[must_use]
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        let ipv6_prefix = bits.clamp(1, 128);
        Key(match self.0 {
            Kind::Peer { .. } => Kind::Peer { ipv6_prefix },
            Kind::Client { proxies, .. } => Kind::Client { proxies, ipv6_prefix },
            other => other,
        })
    }

    /// The first header of this name. Requests without it, or with an empty one, have no key.
    ///
    /// Callers choose their headers: one that nobody has checked (that a session or an API key exists)
    /// lets a caller have as many limiters as it likes. For a header that is a secret, use
    /// [`hashed`](Self::hashed) too.
    pub fn header(name: &str) -> Self {
        Key(Kind::Header(name.into()))
    }

    /// The [path](RequestHead::path), without the query. If it contains identifiers, each has its own
    /// limiter; axum's `MatchedPath`, as an [extension](RequestHead::extension), has none.
    pub fn path() -> Self {
        Key(Kind::Path)
    }

    /// The method.
    pub fn method() -> Self {
        Key(Kind::Method)
    }

    /// All of these together. A request that lacks one of them has no key.
    pub fn all(keys: impl IntoIterator<Item = Key>) -> Self {
        Key(Kind::All(keys.into_iter().collect()))
    }

    /// This key, or the other one if a request does not have it.
    ///
    /// The other key is marked with `%or-` in the limiter's name, which no caller can send: the limiter
    /// of the header `203.0.113.9` is `user:203.0.113.9`, and that of the address
    /// `user:%or-203.0.113.9`. Each further alternative has one mark more.
    #[must_use]
    pub fn or(self, other: Key) -> Self {
        Key(Kind::Or(Arc::new((self, other))))
    }

    /// The SHA-256 of this key, so that a secret (a token) does not become a name that operators can
    /// see.
    ///
    /// **This hides only what nobody can guess**, such as a random token. Who sees the names finds a phone number, an
    /// e-mail address or a short number by hashing all of them: use [`hashed_with`](Self::hashed_with) for these.
    #[must_use]
    pub fn hashed(self) -> Self {
        Key(Kind::Hashed(Arc::new(self)))
    }

    /// The HMAC-SHA-256 of this key with a secret, so that what could be guessed (a phone number, an e-mail address)
    /// does not become a name that operators can see: who does not have the secret cannot try values out.
    ///
    /// All services that share the limiters need the same secret, of 16 random bytes or more; shorter ones are refused
    /// when the limits are made. With another secret all callers have other limiters.
    #[must_use]
    pub fn hashed_with(self, secret: impl AsRef<[u8]>) -> Self {
        Key(Kind::HashedWith(Arc::new(self), secret.as_ref().into()))
    }

    /// What this function returns; `None` lets the request pass, uncounted.
    pub fn from_fn(
        key: impl Fn(&RequestHead<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Key(Kind::Sync(Arc::new(key)))
    }

    /// What the future of this function returns; `None` lets the request pass, uncounted, and an error
    /// is answered with 500. The function takes from the request what the future needs.
    ///
    /// All keys of a request are found before any permit is taken.
    pub fn from_async_fn<F, Fut, E>(key: F) -> Self
    where
        F: Fn(&RequestHead<'_>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<String>, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Key(Kind::Async(Arc::new(move |request| {
            let found = key(request);
            async move {
                let found = found.await.map_err(Into::into)?;
                Ok(found.and_then(|key| part(key.as_bytes())))
            }
            .boxed()
        })))
    }

    /// More marks of an [alternative](Self::or) than any key that is found begins with.
    fn alternatives(&self) -> usize {
        match &self.0 {
            Kind::Or(keys) => keys.0.alternatives() + keys.1.alternatives(),
            // Its first part is what it begins with.
            Kind::All(keys) => keys.first().map_or(1, Key::alternatives),
            _ => 1,
        }
    }

    pub(crate) fn is_global(&self) -> bool {
        matches!(self.0, Kind::Global)
    }

    /// Whether what is found may be the hash of what a caller sent.
    pub(crate) fn has_hash(&self) -> bool {
        match &self.0 {
            Kind::Hashed(_) | Kind::HashedWith(..) => true,
            Kind::All(keys) => keys.iter().any(Key::has_hash),
            Kind::Or(keys) => keys.0.has_hash() || keys.1.has_hash(),
            _ => false,
        }
    }

    /// Why it can never be found, if so.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &self.0 {
            Kind::Header(name) => super::check_header_name(name),
            Kind::All(keys) => keys.iter().try_for_each(Key::check),
            Kind::Or(keys) => keys.0.check().and_then(|()| keys.1.check()),
            Kind::Hashed(key) => key.check(),
            Kind::HashedWith(_, secret) if secret.len() < SHORTEST_SECRET => {
                let detail = format!(
                    "a secret of {} bytes for `hashed_with`: must be {SHORTEST_SECRET} or more, so that nobody can guess it",
                    secret.len()
                );
                Err(Error::invalid(Operation::Limits, detail))
            }
            Kind::HashedWith(key, _) => key.check(),
            _ => Ok(()),
        }
    }

    pub(crate) fn find(&self, request: &RequestHead<'_>) -> Result<Lookup, KeyError> {
        let found = match &self.0 {
            Kind::Global => Some(String::new()),
            Kind::Peer { ipv6_prefix } => {
                let peer = request.peer().ok_or(NO_ADDRESS)?;
                Some(client_address::text(peer, *ipv6_prefix))
            }
            Kind::Client { proxies, ipv6_prefix } => {
                let client = proxies.client(request).ok_or(NO_ADDRESS)?;
                Some(client_address::text(client, *ipv6_prefix))
            }
            Kind::Header(name) => request.header_bytes(name).and_then(part),
            Kind::Path => part(request.path().as_bytes()),
            Kind::Method => part(request.method().as_bytes()),
            Kind::Sync(key) => key(request).and_then(|key| part(key.as_bytes())),
            Kind::Async(key) => return Ok(Lookup::Pending(key(request))),
            Kind::All(keys) => return find_all(keys, request),
            Kind::Or(keys) => return find_either(keys, request),
            Kind::Hashed(key) => return Ok(key.find(request)?.map(|key| name::hashed(&key))),
            Kind::HashedWith(key, secret) => {
                let secret = secret.clone();
                return Ok(key.find(request)?.map(move |key| name::hashed_with(&secret, &key)));
            }
        };
        Ok(Lookup::Found(found))
    }
}

/// The shortest secret of [`Key::hashed_with`], in bytes.
const SHORTEST_SECRET: usize = 16;

/// A part of a key; none if it is empty.
fn part(text: &[u8]) -> Option<String> {
    (!text.trim_ascii().is_empty()).then(|| name::escaped(text))
}

const NO_ADDRESS: &str = "the address of the connection is not known: with axum, serve by \
    `redisson_rate_limiter::serve::serve` (feature `axum`); with others of tower, see `RateLimitLayer::peer_from`";

fn find_all(keys: &[Key], request: &RequestHead<'_>) -> Result<Lookup, KeyError> {
    let mut parts = Vec::with_capacity(keys.len());
    let mut lookups = keys.iter().map(|key| key.find(request));
    while let Some(lookup) = lookups.next().transpose()? {
        match lookup {
            Lookup::Found(Some(part)) => parts.push(part),
            Lookup::Found(None) => return Ok(Lookup::Found(None)),
            Lookup::Pending(pending) => {
                let rest = lookups.collect::<Result<Vec<_>, _>>()?;
                return Ok(Lookup::Pending(join_later(parts, pending, rest).boxed()));
            }
        }
    }
    Ok(Lookup::Found(Some(joined(&parts))))
}

/// The rest of [`find_all`], from a part that has to be waited for.
async fn join_later(
    mut parts: Vec<String>,
    pending: BoxFuture<'static, Found>,
    rest: Vec<Lookup>,
) -> Found {
    for lookup in iter::once(Lookup::Pending(pending)).chain(rest) {
        match lookup.resolve().await? {
            Some(part) => parts.push(part),
            None => return Ok(None),
        }
    }
    Ok(Some(joined(&parts)))
}

fn joined(parts: &[String]) -> String {
    name::shortened(parts.join(name::SEPARATOR))
}

fn find_either(keys: &(Key, Key), request: &RequestHead<'_>) -> Result<Lookup, KeyError> {
    let (first, other) = keys;
    // Otherwise a caller could send, as the first key, what another one has as the second.
    let alternatives = first.alternatives();
    let marked = move |key: String| name::ALTERNATIVE.repeat(alternatives) + &key;
    let first = match first.find(request)? {
        Lookup::Found(Some(key)) => return Ok(Lookup::Found(Some(key))),
        Lookup::Found(None) => None,
        Lookup::Pending(key) => Some(key),
    };
    // It needs the request, which will be gone by the time that the first one is known.
    let other = other.find(request)?;
    if let (None, Lookup::Found(key)) = (&first, &other) {
        return Ok(Lookup::Found(key.clone().map(marked)));
    }
    let found = async move {
        if let Some(first) = first
            && let Some(key) = first.await?
        {
            return Ok(Some(key));
        }
        Ok(other.resolve().await?.map(marked))
    };
    Ok(Lookup::Pending(found.boxed()))
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Global => f.write_str("global"),
            Kind::Peer { ipv6_prefix } => write!(f, "peer/{ipv6_prefix}"),
            Kind::Client { ipv6_prefix, .. } => write!(f, "client/{ipv6_prefix}"),
            Kind::Header(name) => write!(f, "header {name}"),
            Kind::Path => f.write_str("path"),
            Kind::Method => f.write_str("method"),
            Kind::All(keys) => f.debug_list().entries(keys.iter()).finish(),
            Kind::Or(keys) => write!(f, "{:?} or {:?}", keys.0, keys.1),
            Kind::Hashed(key) => write!(f, "hash of {key:?}"),
            Kind::HashedWith(key, _) => write!(f, "hash, with a secret, of {key:?}"),
            Kind::Sync(_) | Kind::Async(_) => f.write_str("function"),
        }
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
        let found = key.find(&RequestHead::of(&request, None)).unwrap();
        found.resolve().now_or_never().unwrap().unwrap()
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
