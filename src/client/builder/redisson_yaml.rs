//! Redisson's configuration file, in the layouts of 3.x and 4.x. Its blocks share their settings, so one pass
//! reads them all, from top to bottom.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use super::ClientBuilder;
use crate::client::Client;
use crate::error::{Error, Operation};
#[cfg(feature = "tls")]
use crate::store::redis::Tls;
use crate::store::redis::{Cluster, Replicated, Sentinels, Topology};

mod reasons;
#[cfg(test)]
mod tests;
mod tree;

use tree::{Map, Node};

/// The servers and settings in a `redisson.yaml`, ready to connect; returned by
/// [`ClientBuilder::redisson_yaml`].
#[derive(Clone, Debug)]
#[must_use]
pub struct RedissonYaml {
    builder: ClientBuilder,
    topology: Topology,
    ignored: Vec<IgnoredSetting>,
}

/// A setting in a `redisson.yaml` that has no effect here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IgnoredSetting {
    /// Where the setting is, for example `clusterServersConfig.readMode`.
    pub name: String,
    /// Why the setting has no effect.
    pub reason: &'static str,
}

impl ClientBuilder {
    /// Reads the Java side's configuration file: the block of one server, of a cluster, of sentinels or of replicated
    /// servers, in the layout of Redisson 3.x or 4.x (which has credentials and TLS at the root). Settings that this
    /// builder already has are kept. With the feature `redisson-yaml`; docs/deployment.md has an example.
    ///
    /// It takes over the addresses and the database; the user and the password; a `nameMapper` that has only a
    /// `prefix`; `timeout`, as the [deadline](Self::deadline) of an operation; the `natMapper` of a cluster or of
    /// sentinels; and for `rediss://` addresses `sslTruststore` and `sslKeystore`, if the files are in PEM format.
    /// `${NAME}` and `${NAME:-default}` are replaced by environment variables. [`RedissonYaml::ignored`] lists all
    /// other settings.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the file cannot be read, does not have
    /// exactly one such block, or has a setting that must not be ignored:
    ///
    /// - an invalid address, or a variable without a value;
    /// - `masterSlaveServersConfig`, whose master is fixed;
    /// - a certificate store that is not a file in PEM format, or an `sslTrustManagerFactory` without one, unless this
    ///   builder has `tls` settings;
    /// - a `credentialsResolver` without a password next to it;
    /// - a `nameMapper` that has no prefix or more than a prefix, unless this builder has a
    ///   [`key_prefix`](Self::key_prefix).
    pub fn redisson_yaml(self, path: impl AsRef<Path>) -> Result<RedissonYaml, Error> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|error| invalid(format!("{}", path.display())).with_source(error))?;
        let read = self.redisson_yaml_text(&text, |name| std::env::var(name).ok());
        read.map_err(|why| invalid(format!("{}: {why}", path.display())))
    }

    /// Reads the text of such a file, with these environment variables.
    pub(crate) fn redisson_yaml_text(
        self,
        text: &str,
        value_of: impl Fn(&str) -> Option<String>,
    ) -> Result<RedissonYaml, Why> {
        let text = tree::with_variables(text, value_of);
        Map::read(&text).and_then(|map| Reader::new(self, map)?.read())
    }
}

impl RedissonYaml {
    /// The settings in the file that have no effect.
    pub fn ignored(&self) -> &[IgnoredSetting] {
        &self.ignored
    }

    /// Connects: see [`ClientBuilder::connect`]. The future may be dropped at any time.
    pub async fn connect(self) -> Result<Client, Error> {
        self.builder.connect(self.topology).await
    }

    /// Connects at the first call: see [`ClientBuilder::connect_lazy`].
    pub fn connect_lazy(self) -> Result<Client, Error> {
        self.builder.connect_lazy(self.topology)
    }
}

/// `clusterServersConfig.readMode: …`, with the reason.
impl fmt::Display for IgnoredSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.reason)
    }
}

/// Why a file is refused.
type Why = String;

const BLOCKS: [&str; 5] = [
    "singleServerConfig",
    "clusterServersConfig",
    "sentinelServersConfig",
    "replicatedServersConfig",
    "masterSlaveServersConfig",
];

/// Takes settings out of a file, and collects those that it ignores.
struct Reader {
    builder: ClientBuilder,
    /// The name of the block.
    kind: &'static str,
    block: Map,
    /// Some settings of the block have been here since 4.0.
    root: Map,
    ignored: Vec<IgnoredSetting>,
}

impl Reader {
    fn new(builder: ClientBuilder, mut root: Map) -> Result<Self, Why> {
        let taken = BLOCKS.into_iter().filter_map(|kind| Some((kind, root.take(kind)?)));
        let mut blocks: Vec<_> = taken.collect();
        let (kind, block) = match blocks.pop() {
            Some((kind, Node::Map(block))) if blocks.is_empty() => (kind, block),
            Some((kind, _)) if blocks.is_empty() => return Err(format!("{kind} has no settings")),
            _ => return Err(format!("exactly one of {} must be there", BLOCKS[..4].join(", "))),
        };
        Ok(Reader { builder, kind, block, root, ignored: Vec::new() })
    }

    fn read(mut self) -> Result<RedissonYaml, Why> {
        self.read_name_mapper()?;
        self.read_database()?;
        self.read_address_map()?;
        let nodes = match self.kind {
            "singleServerConfig" => vec![address(&self.needed("address")?)],
            "clusterServersConfig" | "replicatedServersConfig" => {
                self.addresses("nodeAddresses")?
            }
            _ => Vec::new(),
        };
        self.read_login(nodes.first().map_or("", String::as_str))?;
        let mut nodes = nodes.iter().map(String::as_str);
        let topology = match self.kind {
            "singleServerConfig" => nodes.next().unwrap_or("").try_into().map(Topology::Single),
            "clusterServersConfig" => Cluster::new(nodes).map(Topology::from),
            "sentinelServersConfig" => Ok(self.read_sentinels()?.into()),
            "replicatedServersConfig" => Replicated::new(nodes).map(Topology::from),
            _ => {
                return Err("masterSlaveServersConfig is not supported: its master is fixed. Use \
                    replicatedServersConfig, which finds the master"
                    .to_owned());
            }
        };
        let topology = topology.map_err(said)?;
        self.read_tls(&topology)?;
        if let Some(timeout) = self.number("timeout")? {
            self.builder.deadline.get_or_insert(Duration::from_millis(timeout));
        }
        self.ignore_rest();
        let Reader { builder, ignored, .. } = self;
        Ok(RedissonYaml { builder, topology, ignored })
    }

    /// As in Redisson, the credentials in an address count before those beside it, and a user without a password is
    /// not used.
    fn read_login(&mut self, address: &str) -> Result<(), Why> {
        let (user, password) = (self.text("username")?, self.text("password")?);
        let login = address.rsplit_once('@').and_then(|(login, _)| login.split_once("://"));
        let has_user = login.is_some_and(|(_, login)| !login.starts_with(':'));
        let access = &mut self.builder.access;
        let has_password = access.password.is_some() || password.is_some() || login.is_some();
        let user = user.filter(|_| has_password && !has_user);
        access.user = access.user.take().or(user);
        access.password = access.password.take().or(password.filter(|_| login.is_none()));
        if self.take_unless_default("credentialsResolver", "DefaultCredentialsResolver").is_some() {
            if self.builder.access.password.is_none() {
                return Err(
                    "credentialsResolver: what it answers cannot be known: give the builder a \
                    `user` and a `password`"
                        .to_owned(),
                );
            }
            self.ignore("credentialsResolver", "the builder's or the file's password is used");
        }
        Ok(())
    }

    /// Never ignored: keys without their prefix would be those of other limiters.
    fn read_name_mapper(&mut self) -> Result<(), Why> {
        // The builder's own prefix replaces the mapper.
        let mapper = self.take_unless_default("nameMapper", "DefaultNameMapper");
        let mut mapper = match mapper.filter(|_| self.builder.key_prefix.is_empty()) {
            None => return Ok(()),
            Some(Node::Map(mapper)) => mapper,
            Some(_) => return Err("nameMapper: must name a class".to_owned()),
        };
        let prefix = text_of("nameMapper.prefix", mapper.take("prefix"))?;
        let what = match (mapper.entries.first(), prefix) {
            (None, Some(prefix)) => {
                self.builder.key_prefix = prefix;
                return Ok(());
            }
            (Some((name, _)), _) => format!("it has a setting {name:?} besides `prefix`"),
            (None, None) => "it has no `prefix`".to_owned(),
        };
        Err(format!(
            "what nameMapper does cannot be known, as {what}: if it only adds a prefix, give it to \
            the builder with `key_prefix`"
        ))
    }

    fn read_database(&mut self) -> Result<(), Why> {
        let database = self.number("database")?;
        let access = &mut self.builder.access;
        access.database = access.database.or(database.filter(|database| *database > 0));
        Ok(())
    }

    /// Servers of a cluster and sentinels announce addresses. Redisson writes it in three ways: as a map, or as a mapper
    /// by host or by host and port.
    fn read_address_map(&mut self) -> Result<(), Why> {
        if !matches!(self.kind, "clusterServersConfig" | "sentinelServersConfig") {
            return Ok(());
        }
        let mapper = self.take_unless_default("natMapper", "DefaultNatMapper");
        let map = match (self.take("natMap"), mapper) {
            (Some(map), _) => map,
            (None, Some(Node::Map(mut mapper))) => {
                let map = mapper.take("hostsPortMap").or_else(|| mapper.take("hostsMap"));
                map.ok_or(
                    "natMapper: must have hostsPortMap or hostsMap; or give the builder an address map",
                )?
            }
            (None, Some(_)) => return Err("natMapper: must name a class".to_owned()),
            (None, None) => return Ok(()),
        };
        let Node::Map(map) = map else { return Err("natMapper: must have a map".to_owned()) };
        if !self.builder.access.address_map.is_empty() {
            return Ok(());
        }
        for (from, to) in map.entries {
            let to = text_of("natMapper", Some(to))?.unwrap_or_default();
            self.builder.access.address_map.add([(&*from, &*to)]).map_err(said)?;
        }
        Ok(())
    }

    fn read_sentinels(&mut self) -> Result<Sentinels, Why> {
        let name = self.needed("masterName")?;
        let addresses = self.addresses("sentinelAddresses")?;
        let sentinels = Sentinels::new(name, addresses.iter().map(String::as_str));
        let mut sentinels = sentinels.map_err(said)?;
        if let Some(user) = self.text("sentinelUsername")? {
            sentinels = sentinels.user(user);
        }
        if let Some(password) = self.text("sentinelPassword")? {
            sentinels = sentinels.password(password);
        }
        Ok(sentinels)
    }

    fn read_tls(&mut self, topology: &Topology) -> Result<(), Why> {
        let (truststore, keystore) = (self.text("sslTruststore")?, self.text("sslKeystore")?);
        for (setting, harmless) in
            [("sslVerificationMode", "STRICT"), ("sslEnableEndpointIdentification", "true")]
        {
            if self.text(setting)?.is_some_and(|value| value != harmless) {
                self.ignore(setting, "certificates and host names are always checked");
            }
        }
        #[cfg(feature = "tls")]
        if topology.uses_tls() && self.builder.access.tls.is_none() {
            if truststore.is_none() && self.take("sslTrustManagerFactory").is_some() {
                return Err(
                    "sslTrustManagerFactory: whom it trusts cannot be known: give the builder the \
                    authorities with `tls`"
                        .to_owned(),
                );
            }
            let mut tls = Tls::new();
            if let Some(url) = truststore {
                tls = tls.ca_pem(read_pem("sslTruststore", &url)?);
            }
            if let Some(url) = keystore {
                let pem = read_pem("sslKeystore", &url)?;
                if !pem.contains("PRIVATE KEY-----") {
                    return Err("sslKeystore: the file has no private key".to_owned());
                }
                tls = tls.identity_pem(pem.clone(), pem);
            }
            self.builder.access.tls = Some(tls);
        }
        #[cfg(not(feature = "tls"))]
        let _ = (topology, truststore, keystore);
        Ok(())
    }

    /// Takes a setting out, of the root if it is there.
    fn take(&mut self, name: &str) -> Option<Node> {
        self.root.take(name).or_else(|| self.block.take(name))
    }

    /// Takes a setting out; `None` if it is this class, which Redisson uses by default.
    fn take_unless_default(&mut self, name: &str, class: &str) -> Option<Node> {
        let is_default = |map: &Map| {
            let package = map.class.strip_suffix(class);
            package.is_some_and(|it| it.starts_with("org.redisson.") && it.ends_with('.'))
        };
        self.take(name).filter(|node| !matches!(node, Node::Map(map) if is_default(map)))
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, Why> {
        let node = self.take(name);
        text_of(name, node)
    }

    fn needed(&mut self, name: &str) -> Result<String, Why> {
        self.text(name)?.ok_or_else(|| format!("{} has no {name}", self.kind))
    }

    fn number<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, Why> {
        let number = |text: String| text.parse().map_err(|_| format!("{name}: must be a number"));
        self.text(name)?.map(number).transpose()
    }

    /// The addresses of a list, or a single one.
    fn addresses(&mut self, name: &str) -> Result<Vec<String>, Why> {
        let list = match self.take(name) {
            Some(Node::List(list)) => list,
            Some(one) => vec![one],
            None => return Err(format!("{} has no {name}", self.kind)),
        };
        let urls = list.into_iter().filter_map(|node| text_of(name, Some(node)).transpose());
        urls.map(|url| Ok(address(&url?))).collect()
    }

    fn ignore(&mut self, name: &str, reason: &'static str) {
        self.ignored.push(IgnoredSetting { name: format!("{}.{name}", self.kind), reason });
    }

    fn ignore_rest(&mut self) {
        let of_block = std::mem::take(&mut self.block).entries.into_iter();
        let of_block = of_block.map(|(name, node)| (format!("{}.{name}", self.kind), node));
        for (name, node) in of_block.chain(std::mem::take(&mut self.root).entries) {
            let setting = name.rsplit('.').next().unwrap_or(&name);
            if setting != "tcpNoDelay" || node != Node::Text("true".to_owned()) {
                self.ignored.push(IgnoredSetting { reason: reasons::why_ignored(setting), name });
            }
        }
    }
}

/// The text of a store in PEM format. A store that cannot be read is never ignored: without its trust store, a client
/// would trust all authorities of the platform.
#[cfg(feature = "tls")]
fn read_pem(name: &str, url: &str) -> Result<String, Why> {
    let why =
        |why: &str| format!("{name}: {url}: {why}: give the builder the certificates with `tls`");
    let path = url.strip_prefix("file:").ok_or_else(|| why("only file: URLs can be read"))?;
    let path = path.strip_prefix("//").unwrap_or(path);
    let bytes = std::fs::read(path).map_err(|error| why(&error.to_string()))?;
    let pem = String::from_utf8(bytes).ok().filter(|pem| pem.contains("-----BEGIN "));
    pem.ok_or_else(|| why("it is not in PEM format"))
}

/// An address as Redisson reads it: a path does not name a database, what stands alone before the `@` is a password, and
/// a `+` in it a space. Otherwise a file could lead to other limiters here than in Java.
fn address(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| *scheme != "unix") else {
        return url.to_owned();
    };
    let end = rest.rfind('@').unwrap_or(0);
    let end = rest[end..].find(['/', '?', '#']).map_or(rest.len(), |at| end + at);
    match rest[..end].rsplit_once('@') {
        Some((login, host)) => {
            let colon = if login.contains(':') { "" } else { ":" };
            format!("{scheme}://{colon}{}@{host}", login.replace('+', "%20"))
        }
        None => format!("{scheme}://{}", &rest[..end]),
    }
}

fn text_of(name: &str, node: Option<Node>) -> Result<Option<String>, Why> {
    match node {
        None => Ok(None),
        Some(Node::Text(text)) => match tree::first_variable(&text) {
            Some(variable) => Err(format!(
                "{name}: the environment variable {variable} is not set, and ${{{variable}}} has no default"
            )),
            None => Ok(Some(text)),
        },
        Some(_) => Err(format!("{name}: must be text")),
    }
}

fn said(error: Error) -> Why {
    error.to_string()
}

fn invalid(detail: String) -> Error {
    Error::invalid(Operation::Connect, detail)
}
