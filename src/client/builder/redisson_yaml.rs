//! Redisson's configuration file, in the layouts of 3.x and 4.x. Its blocks share their settings, so one pass
//! reads them all, from top to bottom.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use super::ClientBuilder;
use crate::client::Client;
use crate::error::{Error, Operation};
#[cfg(feature = "tls")]
use crate::store::redis::Tls;
use crate::store::redis::{Cluster, Endpoint, Replicated, Sentinels, Topology};

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
    /// Reads the Java side's configuration file: the block of one server, of a cluster, of sentinels or of
    /// replicated servers, in the layout of Redisson 3.x or 4.x (which has credentials and TLS at the root).
    /// Settings that this builder already has are kept.
    ///
    /// It takes over the addresses and the database; the user and the password; a `nameMapper` that has only
    /// a `prefix`; `timeout`, as the [deadline](Self::deadline) of an operation; the `natMapper` of a cluster
    /// or of sentinels; and for `rediss://` addresses `sslTruststore` and `sslKeystore`, if the files are in
    /// PEM format. `${NAME}` and `${NAME:-default}` are replaced by environment variables.
    /// [`RedissonYaml::ignored`] lists all other settings. With the feature `redisson-yaml`.
    ///
    /// ```no_run
    /// use redisson_rate_limiter::Client;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redisson_rate_limiter::Error> {
    /// let file = Client::builder().redisson_yaml("redisson.yaml")?;
    /// for ignored in file.ignored() {
    ///     eprintln!("redisson.yaml: {ignored}");
    /// }
    /// let client = file.connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the file cannot be read, does not
    /// have exactly one such block, or has a setting that must not be ignored:
    ///
    /// - an invalid address, or a variable without a value;
    /// - a certificate store that is not a file in PEM format, unless this builder has `tls` settings;
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

    /// Connects: see [`ClientBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
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
    root: Map,
    /// The name of the block, and its settings.
    kind: &'static str,
    block: Map,
    ignored: Vec<IgnoredSetting>,
}

impl Reader {
    fn new(builder: ClientBuilder, mut root: Map) -> Result<Self, Why> {
        let mut blocks = BLOCKS
            .into_iter()
            .filter_map(|kind| root.take(kind).map(|node| (kind, node)))
            .collect::<Vec<_>>();
        let (kind, block) = match blocks.pop() {
            Some((kind, Node::Map(block))) if blocks.is_empty() => (kind, block),
            Some((kind, _)) if blocks.is_empty() => return Err(format!("{kind} has no settings")),
            _ => return Err(format!("exactly one of {} must be there", BLOCKS[..4].join(", "))),
        };
        Ok(Reader { builder, root, kind, block, ignored: Vec::new() })
    }

    fn read(mut self) -> Result<RedissonYaml, Why> {
        self.read_login()?;
        self.read_name_mapper()?;
        let topology = match self.kind {
            "singleServerConfig" => {
                self.read_database()?;
                let address = self.text("address")?.ok_or("singleServerConfig has no address")?;
                Endpoint::try_from(&*address).map(Topology::from)
            }
            "clusterServersConfig" => {
                self.read_address_map()?;
                let nodes = self.list("nodeAddresses")?;
                Cluster::new(nodes.iter().map(String::as_str)).map(Topology::from)
            }
            "sentinelServersConfig" => {
                self.read_database()?;
                self.read_sentinels()?.map(Topology::from)
            }
            "replicatedServersConfig" => {
                self.read_database()?;
                let nodes = self.list("nodeAddresses")?;
                Replicated::new(nodes.iter().map(String::as_str)).map(Topology::from)
            }
            _ => {
                return Err("masterSlaveServersConfig is not supported: its master is fixed. Use \
                    replicatedServersConfig, which finds the master"
                    .to_owned());
            }
        };
        let topology = topology.map_err(|error| error.to_string())?;
        self.read_tls(&topology)?;
        if let Some(timeout) = self.number("timeout")? {
            let timeout = Duration::from_millis(timeout);
            self.builder.deadline.get_or_insert(timeout);
        }
        self.ignore_rest();
        let Reader { builder, ignored, .. } = self;
        Ok(RedissonYaml { builder, topology, ignored })
    }

    fn read_login(&mut self) -> Result<(), Why> {
        let (user, password) = (self.shared_text("username")?, self.shared_text("password")?);
        let access = &mut self.builder.access;
        access.user = access.user.take().or(user);
        access.password = access.password.take().or(password);
        if let Some(resolver) = self.shared("credentialsResolver")
            && !is_default(&resolver)
        {
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
        let Some(mapper) = self.shared("nameMapper") else { return Ok(()) };
        if is_default(&mapper) {
            return Ok(());
        }
        // The builder's own prefix replaces the mapper.
        if !self.builder.key_prefix.is_empty() {
            return Ok(());
        }
        let Node::Map(mut mapper) = mapper else {
            return Err("nameMapper: must name a class".to_owned());
        };
        let prefix = text_of("nameMapper.prefix", mapper.take("prefix"))?;
        let rest = mapper.entries.iter().find(|(_, node)| *node != Node::Null);
        let (Some(prefix), None) = (prefix, rest) else {
            let what = match rest {
                Some((name, _)) => format!("it has a setting {name:?} besides `prefix`"),
                None => "it has no `prefix`".to_owned(),
            };
            return Err(format!(
                "what nameMapper does cannot be known, as {what}: if it only adds a prefix, give it to \
                the builder with `key_prefix`"
            ));
        };
        self.builder.key_prefix = prefix;
        Ok(())
    }

    fn read_database(&mut self) -> Result<(), Why> {
        let database = self.number("database")?;
        let database = database.map(u32::try_from).transpose();
        let database = database.map_err(|_| "database: must be a number".to_owned())?;
        let access = &mut self.builder.access;
        access.database = access.database.or(database.filter(|database| *database > 0));
        Ok(())
    }

    /// Redisson writes it in three ways: as a map, or as a mapper by host or by host and port.
    fn read_address_map(&mut self) -> Result<(), Why> {
        let map = match (self.block.take("natMap"), self.block.take("natMapper")) {
            (Some(map), _) => map,
            (None, Some(mapper)) if is_default(&mapper) => return Ok(()),
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
            let added = self.builder.access.address_map.add([(&*from, &*to)]);
            added.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn read_sentinels(&mut self) -> Result<Result<Sentinels, Error>, Why> {
        let name = self.text("masterName")?.ok_or("sentinelServersConfig has no masterName")?;
        let addresses = self.list("sentinelAddresses")?;
        let (user, password) = (self.text("sentinelUsername")?, self.text("sentinelPassword")?);
        self.read_address_map()?;
        let sentinels = Sentinels::new(name, addresses.iter().map(String::as_str));
        Ok(sentinels.map(|mut sentinels| {
            if let Some(user) = user {
                sentinels = sentinels.user(user);
            }
            match password {
                Some(password) => sentinels.password(password),
                None => sentinels,
            }
        }))
    }

    fn read_tls(&mut self, topology: &Topology) -> Result<(), Why> {
        let truststore = self.shared_text("sslTruststore")?;
        let keystore = self.shared_text("sslKeystore")?;
        for (setting, harmless) in
            [("sslVerificationMode", "STRICT"), ("sslEnableEndpointIdentification", "true")]
        {
            if self.shared_text(setting)?.is_some_and(|value| value != harmless) {
                self.ignore(setting, "certificates and host names are always checked");
            }
        }
        if !topology.uses_tls() {
            return Ok(());
        }
        #[cfg(feature = "tls")]
        if self.builder.access.tls.is_none() {
            if truststore.is_none() && self.shared("sslTrustManagerFactory").is_some() {
                return Err(
                    "sslTrustManagerFactory: whom it trusts cannot be known: give the builder the \
                    authorities with `tls`"
                        .to_owned(),
                );
            }
            let mut tls = Tls::new();
            if let Some(pem) = self.read_pem("sslTruststore", truststore)? {
                tls = tls.ca_pem(pem);
            }
            match self.read_pem("sslKeystore", keystore)? {
                Some(pem) if pem.contains("PRIVATE KEY-----") => {
                    tls = tls.identity_pem(pem.clone(), pem);
                }
                Some(_) => return Err("sslKeystore: the file has no private key".to_owned()),
                None => {}
            }
            self.builder.access.tls = Some(tls);
        }
        #[cfg(not(feature = "tls"))]
        let _ = (truststore, keystore);
        Ok(())
    }

    /// The text of a store in PEM format. A store that cannot be read is never ignored: without its trust
    /// store, a client would trust all authorities of the platform.
    #[cfg(feature = "tls")]
    fn read_pem(&self, name: &str, url: Option<String>) -> Result<Option<String>, Why> {
        let Some(url) = url else { return Ok(None) };
        let why = |why: String| {
            format!("{name}: {url}: {why}: give the builder the certificates with `tls`")
        };
        let path = url.strip_prefix("file:");
        let path = path.ok_or_else(|| why("only file: URLs can be read".to_owned()))?;
        let path = path.strip_prefix("//").unwrap_or(path);
        let bytes = std::fs::read(path).map_err(|error| why(error.to_string()))?;
        match String::from_utf8(bytes) {
            Ok(pem) if pem.contains("-----BEGIN ") => Ok(Some(pem)),
            _ => Err(why("it is not in PEM format".to_owned())),
        }
    }

    /// A setting of the block that has been at the root since 4.0.
    fn shared(&mut self, name: &str) -> Option<Node> {
        let of_block = self.block.take(name);
        self.root.take(name).or(of_block)
    }

    fn shared_text(&mut self, name: &str) -> Result<Option<String>, Why> {
        let node = self.shared(name);
        text_of(name, node)
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, Why> {
        let node = self.block.take(name);
        text_of(name, node)
    }

    fn number(&mut self, name: &str) -> Result<Option<u64>, Why> {
        let number = |text: String| text.parse().map_err(|_| format!("{name}: must be a number"));
        self.text(name)?.map(number).transpose()
    }

    /// A list, or a single element.
    fn list(&mut self, name: &str) -> Result<Vec<String>, Why> {
        let list = match self.block.take(name) {
            Some(Node::List(list)) => list,
            Some(one) => vec![one],
            None => return Err(format!("{} has no {name}", self.kind)),
        };
        let text = |node| Ok(text_of(name, Some(node))?.unwrap_or_default());
        list.into_iter().map(text).collect()
    }

    fn ignore(&mut self, name: &str, reason: &'static str) {
        self.ignored.push(IgnoredSetting { name: format!("{}.{name}", self.kind), reason });
    }

    fn ignore_rest(&mut self) {
        let of_root = std::mem::take(&mut self.root).entries;
        let of_block = std::mem::take(&mut self.block).entries;
        let of_block =
            of_block.into_iter().map(|(name, node)| (format!("{}.{name}", self.kind), node));
        for (name, node) in of_block.chain(of_root) {
            let setting = name.rsplit('.').next().unwrap_or(&name);
            if node != Node::Null && !(setting == "tcpNoDelay" && node == Node::Text("true".into()))
            {
                self.ignored.push(IgnoredSetting { reason: reasons::why_ignored(setting), name });
            }
        }
    }
}

/// Whether this is the class that Redisson uses by default.
fn is_default(node: &Node) -> bool {
    matches!(node, Node::Map(map) if map.class().starts_with("Default"))
}

fn text_of(name: &str, node: Option<Node>) -> Result<Option<String>, Why> {
    match node {
        None | Some(Node::Null) => Ok(None),
        Some(Node::Text(text)) => match tree::first_variable(&text) {
            Some(variable) => Err(format!(
                "{name}: the environment variable {variable} is not set, and ${{{variable}}} has no default"
            )),
            None => Ok(Some(text)),
        },
        Some(_) => Err(format!("{name}: must be text")),
    }
}

fn invalid(detail: String) -> Error {
    Error::invalid(Operation::Connect, detail)
}
