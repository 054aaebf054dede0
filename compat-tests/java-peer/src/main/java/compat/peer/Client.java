package compat.peer;

import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;

import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.BaseConfig;
import org.redisson.config.Config;

/**
 * Builds the client; everything that the options do not set is Redisson's default, but for how often a
 * cluster is looked at: every 5 s would outlast most tests.
 */
final class Client {
    private Client() {
    }

    static RedissonClient connect(Options options) {
        Config config = new Config();
        Options.Servers redis = options.redis();
        BaseConfig<?> server = servers(config, redis);
        // In 4.0 these moved from the server's configuration to the main one.
        if (redis.user() != null) {
            set(config, server, "setUsername", redis.user());
        }
        if (redis.password() != null) {
            set(config, server, "setPassword", redis.password());
        }
        if (!options.keyPrefix().isEmpty()) {
            set(config, server, "setNameMapper", prefixMapper(options.keyPrefix()));
        }
        if (options.ca() != null) {
            set(config, server, "setSslTruststore", Certificates.truststore(options.ca()));
            set(config, server, "setSslTruststorePassword", Certificates.PASSWORD);
        }
        if (options.cert() != null) {
            set(config, server, "setSslKeystore", Certificates.keystore(options.cert(), options.key()));
            set(config, server, "setSslKeystorePassword", Certificates.PASSWORD);
        }
        return Redisson.create(config);
    }

    private static BaseConfig<?> servers(Config config, Options.Servers redis) {
        if ("cluster".equals(redis.topology())) {
            return config.useClusterServers().addNodeAddress(redis.addresses()).setScanInterval(500);
        }
        if ("sentinel".equals(redis.topology())) {
            // The check refuses a single sentinel.
            return config.useSentinelServers().setMasterName(redis.path()).addSentinelAddress(redis.addresses())
                .setCheckSentinelsList(redis.hosts().size() > 1);
        }
        return config.useSingleServer().setAddress(redis.addresses()[0]).setDatabase(redis.database());
    }

    /** Calls the setter on the object that has it in this release; the main configuration comes first. */
    private static void set(Config config, BaseConfig<?> server, String setter, Object value) {
        try {
            Method ofConfig = setter(config, setter, value);
            if (ofConfig != null) {
                ofConfig.invoke(config, value);
                return;
            }
            Method ofServer = setter(server, setter, value);
            if (ofServer == null) {
                throw new IllegalStateException(setter + " is not in this release");
            }
            ofServer.invoke(server, value);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(setter, e);
        }
    }

    private static Method setter(Object target, String name, Object value) {
        return Arrays.stream(target.getClass().getMethods())
            .filter(m -> m.getName().equals(name) && m.getParameterCount() == 1)
            .filter(m -> m.getParameterTypes()[0].isInstance(value))
            .findFirst().orElse(null);
    }

    /** A NameMapper, which is in the package {@code config} since 4.0 and was in {@code api} before. */
    private static Object prefixMapper(String prefix) {
        Class<?> type = Releases.type("org.redisson.config.NameMapper", "org.redisson.api.NameMapper");
        return Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (self, method, args) -> {
            switch (method.getName()) {
                case "map":
                    return args[0] == null ? null : prefix + args[0];
                case "unmap":
                    String name = (String) args[0];
                    return name != null && name.startsWith(prefix) ? name.substring(prefix.length()) : name;
                case "equals":
                    return self == args[0];
                case "hashCode":
                    return System.identityHashCode(self);
                default:
                    return "prefix " + prefix;
            }
        });
    }
}
