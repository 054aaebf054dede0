//! The client that the arguments and the environment describe.

use std::env::VarError;
use std::path::{Path, PathBuf};

use redisson_rate_limiter::topology::{Replicated, Sentinels, Topology};
use redisson_rate_limiter::{Client, ClientBuilder, Clock, Tls};

use crate::args::{Common, Dated};
use crate::exit::{Failure, Result};
use crate::out::Out;

const PASSWORD: &str = "REDISSON_LIMITER_PASSWORD";
const SENTINEL_PASSWORD: &str = "REDISSON_LIMITER_SENTINEL_PASSWORD";
const URL: &str = "redis://127.0.0.1:6379";

/// Connects, with one attempt.
pub async fn connect(common: &Common, out: &Out) -> Result<Client> {
    // Not an error, because the environment may be meant for other servers too.
    let ignore = |variable: &str, why: &str| {
        if std::env::var_os(variable).is_some_and(|value| !value.is_empty()) {
            out.complain(&format!("{variable} is ignored, because {why}"));
        }
    };
    if common.password_file.is_some() {
        ignore(PASSWORD, "there is a --password-file");
    }
    let builder = builder(common)?;
    if let Some(path) = &common.redisson_yaml {
        if !common.url.is_empty() {
            return Err(Failure::Usage(
                "--url (REDISSON_LIMITER_URL) and --redisson-yaml (REDISSON_LIMITER_REDISSON_YAML) both say \
                 which servers: leave one out"
                    .to_owned(),
            ));
        }
        ignore(SENTINEL_PASSWORD, "no --url names sentinels");
        let file = builder.redisson_yaml(path)?;
        for ignored in file.ignored() {
            out.complain(&format!("{}: ignored: {ignored}", path.display()));
        }
        return Ok(file.connect().await?);
    }
    let topology = topology(common)?;
    if !matches!(topology, Topology::Sentinel(_)) {
        ignore(SENTINEL_PASSWORD, "no --url names sentinels");
    }
    Ok(builder.connect(topology).await?)
}

/// Hints where a limiter may be that was not found under this name.
pub fn other_names(name: &str, common: &Common) -> String {
    match common.key_prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
        None => "if the services put a prefix before their names, give it as --key-prefix; \
             `redisson-limiter list` shows the limiters in use"
            .to_owned(),
        Some(prefix) => format!(
            "its key would be {:?}, because the key prefix is {prefix:?}; without a prefix, \
             `redisson-limiter list` shows all limiters in use",
            format!("{prefix}{name}")
        ),
    }
}

fn builder(common: &Common) -> Result<ClientBuilder> {
    let mut builder = Client::builder().deadline(common.timeout);
    if common.clock == Dated::Server {
        builder = builder.clock(Clock::server());
    }
    builder = with(builder, common.key_prefix.as_ref(), ClientBuilder::key_prefix);
    builder = with(builder, common.client_id.as_ref(), ClientBuilder::id);
    builder = with(builder, common.user.as_ref(), ClientBuilder::user);
    builder = with(builder, password(common)?, ClientBuilder::password);
    builder = with(builder, common.database, ClientBuilder::database);
    builder = with(builder, tls(common)?, ClientBuilder::tls);
    let pairs = common.address_map.iter();
    let pairs = pairs.map(|(announced, reachable)| (&**announced, &**reachable));
    Ok(builder.address_map(pairs)?)
}

/// With this setting, if there is one.
fn with<B, T>(builder: B, setting: Option<T>, set: impl FnOnce(B, T) -> B) -> B {
    match setting {
        Some(setting) => set(builder, setting),
        None => builder,
    }
}

/// The password from the file, without its line ending, or from the environment.
fn password(common: &Common) -> Result<Option<String>> {
    let Some(path) = &common.password_file else { return secret(PASSWORD) };
    let text = String::from_utf8(read(path)?);
    let text = text.map_err(|_| Failure::Usage(format!("{}: not UTF-8", path.display())))?;
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}

/// A password from the environment. An empty one is none: deployments set variables for which they have no value.
fn secret(variable: &str) -> Result<Option<String>> {
    match std::env::var(variable) {
        Ok(password) => Ok(Some(password).filter(|it| !it.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Failure::Usage(format!("{variable}: not UTF-8"))),
    }
}

fn tls(common: &Common) -> Result<Option<Tls>> {
    let Common { ca, cert, key, tls_server_name, .. } = common;
    let pem = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
    let identity = pem(cert)?.zip(pem(key)?);
    let tls = with(Tls::new(), pem(ca)?, Tls::ca_pem);
    let tls = with(tls, identity, |tls, (cert, key)| tls.identity_pem(cert, key));
    let tls = with(tls, tls_server_name.as_ref(), Tls::server_name);
    let is_set = ca.is_some() || cert.is_some() || tls_server_name.is_some();
    Ok(is_set.then_some(tls))
}

fn topology(common: &Common) -> Result<Topology> {
    let usage = |text: &str| Failure::Usage(text.to_owned());
    let topology = match common.url.as_slice() {
        urls if common.replicated => Replicated::new(urls.iter().map(String::as_str))?.into(),
        [] => Topology::try_from(URL)?,
        [url] => Topology::try_from(url.as_str())?,
        _ => return Err(usage("more than one --url needs --replicated")),
    };
    let is_announced = matches!(topology, Topology::Cluster(_) | Topology::Sentinel(_));
    if !is_announced && !common.address_map.is_empty() {
        return Err(usage("--address-map is for clusters and sentinels"));
    }
    match (topology, &common.sentinel_user) {
        (Topology::Sentinel(sentinels), user) => {
            let sentinels = with(sentinels, user.as_ref(), Sentinels::user);
            Ok(with(sentinels, secret(SENTINEL_PASSWORD)?, Sentinels::password).into())
        }
        (_, Some(_)) => {
            Err(usage("--sentinel-user (REDISSON_LIMITER_SENTINEL_USER) is for sentinels"))
        }
        (topology, None) => Ok(topology),
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Failure::Io(path.display().to_string(), error))
}
