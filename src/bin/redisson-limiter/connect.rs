//! The client, as the arguments and the environment describe it.

use std::path::Path;

use redisson_rate_limiter::{Client, ClientBuilder, Clock, Replicated, Tls, Topology};

use crate::args::{Common, Dated};
use crate::exit::Failure;
use crate::out::Out;

const PASSWORD: &str = "REDISSON_LIMITER_PASSWORD";
const SENTINEL_PASSWORD: &str = "REDISSON_LIMITER_SENTINEL_PASSWORD";

/// Connects. One attempt is made.
pub async fn connect(common: &Common, out: &mut Out) -> Result<Client, Failure> {
    let builder = builder(common)?;
    if let Some(path) = &common.redisson_yaml {
        let file = builder.redisson_yaml(path)?;
        for ignored in file.ignored() {
            out.complain(&format!("{}: ignored: {ignored}", path.display()));
        }
        return Ok(file.connect().await?);
    }
    Ok(builder.connect(topology(common)?).await?)
}

fn builder(common: &Common) -> Result<ClientBuilder, Failure> {
    let mut builder = Client::builder().deadline(common.timeout);
    if common.clock == Dated::Server {
        builder = builder.clock(Clock::server());
    }
    if let Some(prefix) = &common.key_prefix {
        builder = builder.key_prefix(prefix);
    }
    if let Some(id) = &common.client_id {
        builder = builder.id(id);
    }
    if let Some(user) = &common.user {
        builder = builder.user(user);
    }
    if let Some(password) = password(common)? {
        builder = builder.password(password);
    }
    if let Some(database) = common.database {
        builder = builder.database(database);
    }
    Ok(match tls(common)? {
        Some(tls) => builder.tls(tls),
        None => builder,
    })
}

/// That of the file, without the end of its line, or that of the environment.
fn password(common: &Common) -> Result<Option<String>, Failure> {
    let Some(path) = &common.password_file else { return Ok(std::env::var(PASSWORD).ok()) };
    let text = String::from_utf8(read(path)?);
    let text = text.map_err(|_| Failure::Usage(format!("{}: not UTF-8", path.display())))?;
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}

fn tls(common: &Common) -> Result<Option<Tls>, Failure> {
    let Common { ca, cert, key, tls_server_name, .. } = common;
    let mut tls = Tls::new();
    if let Some(ca) = ca {
        tls = tls.ca_pem(read(ca)?);
    }
    if let (Some(cert), Some(key)) = (cert, key) {
        tls = tls.identity_pem(read(cert)?, read(key)?);
    }
    if let Some(name) = tls_server_name {
        tls = tls.server_name(name);
    }
    let is_set = ca.is_some() || cert.is_some() || tls_server_name.is_some();
    Ok(is_set.then_some(tls))
}

fn topology(common: &Common) -> Result<Topology, Failure> {
    let urls = &common.url;
    if common.replicated {
        return Ok(Replicated::new(urls.iter().map(String::as_str))?.into());
    }
    let [url] = urls.as_slice() else {
        return Err(Failure::Usage("more than one --url needs --replicated".to_owned()));
    };
    let pairs: Option<Vec<(&str, &str)>> =
        common.address_map.iter().map(|pair| pair.split_once('=')).collect();
    let pairs = pairs
        .ok_or_else(|| Failure::Usage("--address-map is like announced=reachable".to_owned()))?;
    Ok(match Topology::try_from(url.as_str())? {
        Topology::Sentinel(mut sentinels) => {
            if let Some(user) = &common.sentinel_user {
                sentinels = sentinels.user(user);
            }
            if let Ok(password) = std::env::var(SENTINEL_PASSWORD) {
                sentinels = sentinels.password(password);
            }
            sentinels.address_map(pairs).map(Topology::from)?
        }
        Topology::Cluster(cluster) => cluster.address_map(pairs).map(Topology::from)?,
        topology if pairs.is_empty() => topology,
        _ => return Err(Failure::Usage("--address-map is for clusters and sentinels".to_owned())),
    })
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::Io(path.display().to_string(), error))
}
