//! Why a Redisson setting has no effect here.

/// The reasons, each with its settings, which are those of 3.20.1, 3.52.0 and 4.7.0.
const REASONS: [(&str, &str); 14] = [
    (
        "there is one connection for each runtime and server",
        "connectionPoolSize connectionMinimumIdleSize masterConnectionPoolSize masterConnectionMinimumIdleSize \
         idleConnectionTimeout lazyInitialization",
    ),
    (
        "replicas are not read",
        "slaveConnectionPoolSize slaveConnectionMinimumIdleSize failedSlaveReconnectionInterval \
         failedSlaveCheckInterval failedSlaveNodeDetector fallbackLoadingToMaster checkMasterLinkStatus \
         checkSlaveStatusWithSyncing slavesSyncTimeout checkLockSyncedSlaves loadBalancer readMode",
    ),
    (
        "this client does not subscribe for callers",
        "subscriptionMode subscriptionsPerConnection subscriptionConnectionPoolSize \
         subscriptionConnectionMinimumIdleSize subscriptionTimeout shardedSubscriptionMode keepPubSubOrder",
    ),
    (
        "attempts are repeated with a back-off until the deadline",
        "retryAttempts retryInterval retryDelay reconnectionDelay",
    ),
    ("an attempt to connect is part of an attempt, a third of the deadline", "connectTimeout"),
    (
        "changes are noticed by what the servers answer",
        "scanInterval checkSlotsCoverage checkSentinelsList sentinelsDiscovery dnsMonitoringInterval \
         dnsMonitoringTimes monitorIPChanges",
    ),
    (
        "connections are not kept alive; a call that gets no answer replaces its connection",
        "keepAlive tcpKeepAlive tcpKeepAliveCount tcpKeepAliveIdle tcpKeepAliveInterval tcpUserTimeout tcpNoDelay \
         pingConnectionInterval",
    ),
    (
        "it is about the JVM; here the caller's runtime does the work",
        "threads nettyThreads executor nettyExecutor eventLoopGroup nettyHook transportMode \
         addressResolverGroupFactory useThreadClassLoader",
    ),
    (
        "TLS is done by rustls, with certificates and keys in PEM format",
        "sslProvider sslProtocols sslCiphers sslKeystoreType sslTrustManagerFactory sslKeyManagerFactory \
         sslTruststorePassword sslKeystorePassword",
    ),
    ("connections report the name of this crate as their library", "clientName"),
    ("RESP2 is spoken, which all servers understand", "protocol valkeyCapabilities"),
    ("scripts are always called by digest", "useScriptCache"),
    ("commands that were renamed cannot be called", "commandMapper"),
    (
        "it is not about rate limiters",
        "codec referenceEnabled lockWatchdogTimeout lockWatchdogBatchSize fairLockWaitTimeout \
         reliableTopicWatchdogTimeout minCleanUpDelay maxCleanUpDelay cleanUpKeysAmount connectionListener",
    ),
];

pub(super) fn why_ignored(setting: &str) -> &'static str {
    let of_setting = |(_, settings): &&(&str, &str)| settings.split(' ').any(|it| it == setting);
    REASONS.iter().find(of_setting).map_or("it is not known", |(reason, _)| reason)
}
