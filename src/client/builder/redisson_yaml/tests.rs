use std::io::Write as _;
use std::path::PathBuf;

use super::*;
use crate::error::ErrorKind;

/// A file that is removed when this is dropped.
struct File(PathBuf);

impl File {
    fn new(text: &str) -> File {
        let path =
            std::env::temp_dir().join(format!("redisson-{:032x}.yaml", rand::random::<u128>()));
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn read_by(builder: ClientBuilder, text: &str) -> Result<RedissonYaml, Error> {
    builder.redisson_yaml(&File::new(text).0)
}

fn read(text: &str) -> RedissonYaml {
    read_by(Client::builder(), text).unwrap()
}

fn refused(text: &str) -> String {
    let error = read_by(Client::builder(), text).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    error.to_string()
}

fn ignored(file: &RedissonYaml) -> Vec<&str> {
    file.ignored().iter().map(|it| &*it.name).collect()
}

/// Written by `Config.toYAML` of 3.52.0, shortened.
const CLUSTER_3: &str = r#"---
clusterServersConfig:
  idleConnectionTimeout: 10000
  timeout: 2500
  retryDelay: !<org.redisson.config.EqualJitterDelay> {}
  username: "app"
  password: "p:a@s/s"
  credentialsResolver: !<org.redisson.client.DefaultCredentialsResolver> {}
  sslVerificationMode: "STRICT"
  tcpNoDelay: true
  nameMapper: !<com.example.Prefix> {prefix: "shop:"}
  loadBalancer: !<org.redisson.connection.balancer.RoundRobinLoadBalancer> {}
  readMode: "SLAVE"
  clientName: null
  natMapper: !<org.redisson.api.HostPortNatMapper>
    hostsPortMap: {"10.0.0.1:1": "b:2"}
  nodeAddresses:
  - "redis://127.0.0.1:7001"
  - "redis://127.0.0.1:7002"
threads: 16
codec: !<org.redisson.codec.Kryo5Codec> {}
"#;

#[test]
fn a_cluster_in_the_layout_of_3() {
    let file = read(CLUSTER_3);
    let Topology::Cluster(cluster) = &file.topology else { panic!("{file:?}") };
    let shown = format!("{cluster:?} {:?}", file.builder);
    for part in ["127.0.0.1:7001", "127.0.0.1:7002", "10.0.0.1", "\"b\""] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(file.builder.access.user.as_deref(), Some("app"));
    assert_eq!(file.builder.access.password.as_deref(), Some("p:a@s/s"));
    assert_eq!(file.builder.key_prefix, "shop:");
    assert_eq!(file.builder.deadline, Some(Duration::from_millis(2500)));
    let expected = ["idleConnectionTimeout", "retryDelay", "loadBalancer", "readMode"];
    let expected = expected.map(|name| format!("clusterServersConfig.{name}"));
    assert_eq!(ignored(&file), [&expected[..], &["threads".into(), "codec".into()]].concat());
    let shown = file.ignored()[3].to_string();
    assert_eq!(shown, "clusterServersConfig.readMode: replicas are not read");
    assert!(!format!("{file:?}").contains("p:a@s/s"));
}

#[test]
fn credentials_are_at_the_root_in_the_layout_of_4() {
    let file = read(
        "singleServerConfig: {address: 'valkey://db:7000', database: 3, timeout: 1000}\n\
         username: app\npassword: 0123\nnameMapper: !<org.redisson.config.DefaultNameMapper> {}\n\
         retryAttempts: 4\n",
    );
    let Topology::Single(endpoint) = &file.topology else { panic!("{file:?}") };
    assert!(format!("{endpoint:?}").contains("db:7000"));
    let access = &file.builder.access;
    assert_eq!((access.user.as_deref(), access.password.as_deref()), (Some("app"), Some("0123")));
    assert_eq!((access.database, &*file.builder.key_prefix), (Some(3), ""));
    assert_eq!(ignored(&file), ["retryAttempts"]);
    file.connect_lazy().unwrap();
}

#[test]
fn sentinels_and_replicated_servers() {
    let file = read(
        "sentinelServersConfig:\n  masterName: mymaster\n  sentinelPassword: s\n  database: 1\n  \
         sentinelAddresses: ['redis://a:26379', 'redis://b:26379']\n",
    );
    let Topology::Sentinel(sentinels) = &file.topology else { panic!("{file:?}") };
    assert!(format!("{sentinels:?}").contains("mymaster"), "{sentinels:?}");
    assert_eq!((file.builder.access.database, file.ignored().len()), (Some(1), 0));

    let file = read("replicatedServersConfig:\n  nodeAddresses: redis://primary:6379\n");
    assert!(matches!(&file.topology, Topology::Replicated(_)), "{file:?}");
}

#[test]
fn sentinels_have_an_address_map_too() {
    let text = "sentinelServersConfig:\n  masterName: m\n  sentinelAddresses: redis://a:26379\n  \
                natMapper: !<org.redisson.api.HostNatMapper> {hostsMap: {10.0.0.1: b}}\n";
    let file = read(text);
    assert!(matches!(&file.topology, Topology::Sentinel(_)), "{file:?}");
    assert!(format!("{file:?}").contains("10.0.0.1"), "{file:?}");
    assert_eq!(ignored(&file), [""; 0]);
    assert!(refused(&text.replace("hostsMap", "hosts")).contains("natMapper: must have"));
}

#[test]
fn what_is_no_variable_is_text_and_unknown_settings_are_listed() {
    let file = read(
        "singleServerConfig: {address: 'redis://db', password: 'p-${u-v}${z'}\n\
         future: {setting: 1}\nabsent: null\n",
    );
    assert_eq!(file.builder.access.password.as_deref(), Some("p-${u-v}${z"));
    let [unknown] = file.ignored() else { panic!("{:?}", file.ignored()) };
    assert_eq!(unknown.to_string(), "future: it is not known");
}

#[test]
fn what_the_builder_has_is_kept() {
    let builder = Client::builder().password("own").key_prefix("own:").database(7);
    let text = "singleServerConfig: {address: 'redis://db', password: x, database: 3}\n\
                nameMapper: !<com.example.Mapper> {}\n";
    let file = read_by(builder.deadline(Duration::from_secs(1)), text).unwrap();
    assert_eq!(file.builder.access.password.as_deref(), Some("own"));
    assert_eq!((&*file.builder.key_prefix, file.builder.access.database), ("own:", Some(7)));
    assert_eq!(file.builder.deadline, Some(Duration::from_secs(1)));
    assert!(refused(text).contains("`key_prefix`"));
}

#[test]
fn a_mapper_that_does_more_than_add_a_prefix_is_refused() {
    let server = "singleServerConfig: {address: 'redis://db'}\n";
    for (mapper, why) in [
        ("!<com.example.Mapper> {prefix: 'shop:', suffix: ':v1'}", "a setting \"suffix\" besides"),
        ("!<com.example.Mapper> {suffix: ':v1'}", "a setting \"suffix\" besides"),
        ("!<com.example.Mapper> {}", "it has no `prefix`"),
        ("shop", "must name a class"),
    ] {
        let text = format!("{server}nameMapper: {mapper}\n");
        assert!(refused(&text).contains(why), "{}", refused(&text));
        let file = read_by(Client::builder().key_prefix("own:"), &text).unwrap();
        assert_eq!(file.builder.key_prefix, "own:");
    }
    let text =
        format!("{server}nameMapper: !<com.example.Mapper> {{prefix: 'shop:', suffix: null}}\n");
    assert_eq!(read(&text).builder.key_prefix, "shop:");
}

#[test]
fn what_answers_credentials_is_not_replaced_by_none() {
    let resolver = "singleServerConfig: {address: 'redis://db'}\n\
                    credentialsResolver: !<com.example.Vault> {}\n";
    assert!(refused(resolver).contains("credentialsResolver: what it answers cannot be known"));
    let file = read_by(Client::builder().password("own"), resolver).unwrap();
    assert_eq!(ignored(&file), ["singleServerConfig.credentialsResolver"]);
}

/// Otherwise both sides would read one file and use limiters of different databases, or one of them could not log in.
#[test]
fn addresses_and_credentials_mean_what_they_mean_to_redisson() {
    for (url, read) in [
        ("redis://db:6379/3", "redis://db:6379"),
        ("rediss://[::1]:1?protocol=resp3", "rediss://[::1]:1"),
        ("redis://secret@db:1", "redis://:secret@db:1"),
        ("valkey://app:a+b%2B@db:1/2", "valkey://app:a%20b%2B@db:1"),
        ("redis://:a/b@db:1", "redis://:a/b@db:1"),
        ("unix:///s?db=1", "unix:///s?db=1"),
    ] {
        assert_eq!(address(url), read);
    }
    let login = |settings: &str| {
        let access = read(&format!("singleServerConfig: {{{settings}}}\n")).builder.access;
        (access.user, access.password, access.database)
    };
    let some = |text: &str| Some(text.to_owned());
    let file = "username: app, password: file";
    for (settings, expected) in [
        (format!("address: 'redis://db:1/3', {file}"), (some("app"), some("file"), None)),
        (format!("address: 'redis://url@db:1', {file}"), (some("app"), None, None)),
        (format!("address: 'redis://me:url@db:1', {file}, database: 2"), (None, None, Some(2))),
        ("address: 'redis://db:1', username: app".to_owned(), (None, None, None)),
    ] {
        assert_eq!(login(&settings), expected, "{settings}");
    }
}

#[test]
fn a_class_of_ones_own_is_no_default_whatever_its_name() {
    for class in ["DefaultPrefixMapper", "DefaultNameMapper"] {
        let text = format!(
            "singleServerConfig: {{address: 'redis://db'}}\nnameMapper: !<com.example.{class}> {{}}\n"
        );
        let why = refused(&text);
        assert!(why.contains("what nameMapper does cannot be known"), "{why}");
    }
}

/// From 4.0, Redisson selects it at every node.
#[test]
fn a_cluster_may_have_databases() {
    let file = read("clusterServersConfig: {nodeAddresses: ['redis://db:7000'], database: 2}\n");
    assert_eq!((file.builder.access.database, ignored(&file).len()), (Some(2), 0));
}

#[test]
fn variables_come_from_the_environment() {
    // Cargo sets this variable for every test.
    let file = read("singleServerConfig:\n  address: redis://${CARGO_PKG_NAME}:${NOT_SET:-7}\n");
    assert!(format!("{file:?}").contains("redisson-rate-limiter:7"), "{file:?}");
    let text =
        "# ${NOT_SET}\nsingleServerConfig: {address: 'redis://db', password: '${NOT_SET}'}\n";
    let why =
        "password: the environment variable NOT_SET is not set, and ${NOT_SET} has no default";
    assert!(refused(text).contains(why), "{}", refused(text));
}

#[test]
fn what_must_not_be_ignored_is_refused() {
    for (text, why) in [
        ("threads: 1\n", "exactly one of"),
        (
            "singleServerConfig: {address: 'redis://a'}\nclusterServersConfig: {x: 1}\n",
            "exactly one",
        ),
        ("singleServerConfig: {}\n", "no address"),
        ("singleServerConfig: {address: 'db'}\n", "not a valid server address"),
        ("clusterServersConfig: {scanInterval: 1}\n", "no nodeAddresses"),
        ("sentinelServersConfig: {sentinelAddresses: []}\n", "no masterName"),
        ("masterSlaveServersConfig: {masterAddress: 'redis://a'}\n", "is not supported"),
        (
            "singleServerConfig: {address: 'redis://a', timeout: soon}\n",
            "timeout: must be a number",
        ),
        ("singleServerConfig: [\n", ".yaml: "),
        (
            "replicatedServersConfig: {nodeAddresses: ['rediss://a', 'redis://b']}\n",
            "over TLS, or none",
        ),
    ] {
        assert!(refused(text).contains(why), "{text}: {}", refused(text));
    }
    let missing = Client::builder().redisson_yaml("/no/such/file.yaml").unwrap_err();
    assert!(missing.to_string().contains("/no/such/file.yaml"), "{missing}");
}

#[cfg(feature = "tls")]
#[test]
fn stores_are_read_if_they_are_in_pem_format() {
    let pem = File::new("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n");
    let store = File::new("\u{1}not text of that format");
    let text = format!(
        "singleServerConfig: {{address: 'rediss://db', sslVerificationMode: NONE}}\n\
         sslTruststore: file:{}\nsslTruststorePassword: s3cret\n",
        pem.0.display(),
    );
    let file = read(&text);
    assert!(file.builder.access.tls.is_some());
    let expected = ["singleServerConfig.sslVerificationMode", "sslTruststorePassword"];
    assert_eq!(ignored(&file), expected);
    assert!(!format!("{file:?}").contains("s3cret"));
    // Without the truststore a client would trust the platform's authorities; without the keystore it would
    // have no certificate.
    for name in ["sslTruststore", "sslKeystore"] {
        for (url, why) in [
            (format!("file:{}", store.0.display()), "it is not in PEM format"),
            (format!("file:{}.gone", store.0.display()), "No such file"),
            ("classpath:store.jks".to_owned(), "only file: URLs"),
        ] {
            let text = format!("singleServerConfig: {{address: 'rediss://db', {name}: '{url}'}}\n");
            let said = refused(&text);
            assert!(said.contains(&format!("{name}: {url}: {why}")), "{said}");
            assert!(said.contains("`tls`"), "{said}");
            let own = Client::builder().tls(Tls::new());
            assert!(read_by(own, &text).is_ok(), "the builder's own settings are used");
        }
    }
    let no_key = format!(
        "singleServerConfig: {{address: 'rediss://db', sslKeystore: 'file:{}'}}\n",
        pem.0.display()
    );
    assert!(refused(&no_key).contains("no private key"));
    let manager = "singleServerConfig: {address: 'rediss://db'}\n\
                   sslTrustManagerFactory: !<com.example.Trust> {}\n";
    assert!(refused(manager).contains("whom it trusts cannot be known"));
    // Without TLS they are not read at all.
    let file = read(&text.replace("rediss://", "redis://"));
    assert!(file.builder.access.tls.is_none());
}
