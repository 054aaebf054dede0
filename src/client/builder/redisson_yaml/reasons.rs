//! Why a Redisson setting has no effect here.

/// The settings are those of 3.20.1, 3.52.0 and 4.7.0.
pub(super) fn why_ignored(setting: &str) -> &'static str {
    match setting {
        "connectionPoolSize"
        | "connectionMinimumIdleSize"
        | "masterConnectionPoolSize"
        | "masterConnectionMinimumIdleSize"
        | "idleConnectionTimeout"
        | "lazyInitialization" => "there is one connection for each runtime and server",
        "slaveConnectionPoolSize"
        | "slaveConnectionMinimumIdleSize"
        | "failedSlaveReconnectionInterval"
        | "failedSlaveCheckInterval"
        | "failedSlaveNodeDetector"
        | "fallbackLoadingToMaster"
        | "checkMasterLinkStatus"
        | "checkSlaveStatusWithSyncing"
        | "slavesSyncTimeout"
        | "checkLockSyncedSlaves"
        | "loadBalancer"
        | "readMode" => "replicas are not read",
        "subscriptionMode"
        | "subscriptionsPerConnection"
        | "subscriptionConnectionPoolSize"
        | "subscriptionConnectionMinimumIdleSize"
        | "subscriptionTimeout"
        | "shardedSubscriptionMode"
        | "keepPubSubOrder" => "this client does not subscribe for callers",
        "retryAttempts" | "retryInterval" | "retryDelay" | "reconnectionDelay" => {
            "attempts are repeated with a back-off until the deadline"
        }
        "connectTimeout" => "an attempt to connect is part of an attempt, a third of the deadline",
        "scanInterval"
        | "checkSlotsCoverage"
        | "checkSentinelsList"
        | "sentinelsDiscovery"
        | "dnsMonitoringInterval"
        | "dnsMonitoringTimes"
        | "monitorIPChanges" => "changes are noticed by what the servers answer",
        "keepAlive"
        | "tcpKeepAlive"
        | "tcpKeepAliveCount"
        | "tcpKeepAliveIdle"
        | "tcpKeepAliveInterval"
        | "tcpUserTimeout"
        | "tcpNoDelay"
        | "pingConnectionInterval" => {
            "connections are not kept alive; a call that gets no answer replaces its connection"
        }
        "threads"
        | "nettyThreads"
        | "executor"
        | "nettyExecutor"
        | "eventLoopGroup"
        | "nettyHook"
        | "transportMode"
        | "addressResolverGroupFactory"
        | "useThreadClassLoader" => "it is about the JVM; here the caller's runtime does the work",
        "sslProvider"
        | "sslProtocols"
        | "sslCiphers"
        | "sslKeystoreType"
        | "sslTrustManagerFactory"
        | "sslKeyManagerFactory"
        | "sslTruststorePassword"
        | "sslKeystorePassword" => {
            "TLS is done by rustls, with certificates and keys in PEM format"
        }
        "clientName" => "connections report the name of this crate as their library",
        "protocol" | "valkeyCapabilities" => "RESP2 is spoken, which all servers understand",
        "useScriptCache" => "scripts are always called by digest",
        "commandMapper" => "commands that were renamed cannot be called",
        "codec"
        | "referenceEnabled"
        | "lockWatchdogTimeout"
        | "lockWatchdogBatchSize"
        | "fairLockWaitTimeout"
        | "reliableTopicWatchdogTimeout"
        | "minCleanUpDelay"
        | "maxCleanUpDelay"
        | "cleanUpKeysAmount"
        | "connectionListener" => "it is not about rate limiters",
        _ => "it is not known",
    }
}
